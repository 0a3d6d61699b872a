//! Header names, and the distinction between end-to-end and hop-by-hop headers.

use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use worker_client::X_DATA_PARALLEL_RANK;

/// Names a request from end to end; made by the router where the client sent none.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The same, as clients of Anthropic's API look for it in an answer.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Names the worker that answered.
pub(crate) const X_CONDUCTOR_WORKER: HeaderName = HeaderName::from_static("x-conductor-worker");
/// Tokens of the prompt that the index says this worker holds, where a policy asked for that.
pub(crate) const X_CONDUCTOR_MATCHED_TOKENS: HeaderName =
    HeaderName::from_static("x-conductor-matched-tokens");
/// The prefill worker that computed the prompt for the one that answered.
pub(crate) const X_CONDUCTOR_PREFILL_WORKER: HeaderName =
    HeaderName::from_static("x-conductor-prefill-worker");
/// Names the policy that chose it, with its version.
pub(crate) const X_CONDUCTOR_POLICY: HeaderName = HeaderName::from_static("x-conductor-policy");
/// Of a request with the value `1`: how it is decided is kept, to be explained.
pub(crate) const X_CONDUCTOR_EXPLAIN: HeaderName = HeaderName::from_static("x-conductor-explain");
/// A client's session, for policies with affinity.
pub(crate) const X_SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");

/// RFC 9110, section 7.6.1.
const HOP_BY_HOP: [HeaderName; 8] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Leaves of a request's headers what is meant for the worker. The body was read in full, so its length is
/// written anew and nobody is left to expect a `100 Continue`.
pub(crate) fn for_worker(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT] {
        headers.remove(name);
    }
}

/// Names the worker in an answer, where the file wants decisions shown. A label that is no header value is empty.
pub(crate) fn name_worker(headers: &mut HeaderMap, label: &HeaderValue, is_shown: bool) {
    if is_shown && !label.is_empty() {
        headers.insert(X_CONDUCTOR_WORKER, label.clone());
    }
}

/// Besides: a rank is the router's to choose where legs meet, and what a leg answers must be legible.
pub(crate) fn for_two_legs(headers: &mut HeaderMap) {
    for name in [X_DATA_PARALLEL_RANK, ACCEPT_ENCODING] {
        headers.remove(name);
    }
}

/// Removes what belongs to one connection, as the `Connection` header and the standard name it.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        for name in named_by_connection(headers) {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        // Of a value with bytes beyond ASCII, the other options hold.
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        // The usual options, which name no header.
        .filter(|option| {
            !option.eq_ignore_ascii_case(b"keep-alive") && !option.eq_ignore_ascii_case(b"close")
        })
        .filter_map(|option| HeaderName::from_bytes(option).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|&(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn an_option_beyond_ascii_keeps_no_other_from_being_honoured() {
        let mut map = headers(&[("x-private", "1"), ("x-tenant", "t")]);
        let value = HeaderValue::from_bytes(b"\xff, x-private").unwrap();
        map.insert(CONNECTION, value);
        strip_hop_by_hop(&mut map);
        assert_eq!(map, headers(&[("x-tenant", "t")]));
    }

    #[test]
    fn what_belongs_to_the_connection_goes_and_the_rest_stays() {
        let mut map = headers(&[
            ("host", "router"),
            ("connection", "keep-alive, x-private"),
            ("keep-alive", "timeout=5"),
            ("x-private", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "7"),
            ("expect", "100-continue"),
            ("authorization", "Bearer k"),
            ("x-tenant", "t"),
        ]);
        for_worker(&mut map);
        assert_eq!(map, headers(&[("authorization", "Bearer k"), ("x-tenant", "t")]));
    }
}
