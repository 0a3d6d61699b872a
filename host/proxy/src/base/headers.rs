//! Header names, and the distinction between end-to-end and hop-by-hop headers.

use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName,
    HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use worker_client::X_DATA_PARALLEL_RANK;

/// Request id, end to end. The router creates one if the client sent none.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Request id in the response, as clients of Anthropic's API expect it.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Worker that answered.
pub(crate) const X_CONDUCTOR_WORKER: HeaderName = HeaderName::from_static("x-conductor-worker");
/// Prompt tokens that this worker holds by the index, if a policy queried that.
pub(crate) const X_CONDUCTOR_MATCHED_TOKENS: HeaderName =
    HeaderName::from_static("x-conductor-matched-tokens");
/// Prefill worker that computed the prompt for the worker that answered.
pub(crate) const X_CONDUCTOR_PREFILL_WORKER: HeaderName =
    HeaderName::from_static("x-conductor-prefill-worker");
/// Policy that chose the worker, with its version.
pub(crate) const X_CONDUCTOR_POLICY: HeaderName = HeaderName::from_static("x-conductor-policy");
/// Request header with the value `1`: its decision is kept for an explanation.
pub(crate) const X_CONDUCTOR_EXPLAIN: HeaderName = HeaderName::from_static("x-conductor-explain");
/// A client's session, for policies with affinity.
pub(crate) const X_SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");

/// Trace context of W3C.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Vendors' part of the trace context.
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Hop-by-hop headers (RFC 9110, section 7.6.1).
static HOP_BY_HOP: [HeaderName; 8] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Keeps the request headers that are meant for the worker. Removes `Host`, `Content-Length` and `Expect` too: the body
/// was read in full, so its length is written again and no `100 Continue` is due.
pub(crate) fn for_worker(headers: &mut HeaderMap) {
    strip_connection(headers);
    headers.remove(CONTENT_LENGTH);
}

/// Works as [`for_worker`], but keeps a `Content-Length` that is right for a body of this length: another is not
/// written.
pub(crate) fn for_worker_with(headers: &mut HeaderMap, length: usize) {
    strip_connection(headers);
    if !worker_client::states_length(headers, length) {
        headers.remove(CONTENT_LENGTH);
    }
}

/// Removes what belongs to the connection of the client.
fn strip_connection(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    for name in [HOST, EXPECT] {
        headers.remove(name);
    }
}

/// Names the worker in a response if the configuration shows decisions. A label that is not a valid header value is
/// empty.
pub(crate) fn name_worker(headers: &mut HeaderMap, label: &HeaderValue, is_shown: bool) {
    if is_shown && !label.is_empty() {
        headers.insert(X_CONDUCTOR_WORKER, label.clone());
    }
}

/// Removes two more headers of a split request: the router chooses the rank, and it must be able to parse the legs'
/// responses.
pub(crate) fn for_two_legs(headers: &mut HeaderMap) {
    for name in [X_DATA_PARALLEL_RANK, ACCEPT_ENCODING] {
        headers.remove(name);
    }
}

/// Removes the hop-by-hop headers: the standard ones, and those named in `Connection`.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        for name in named_by_connection(headers) {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    // Most requests and responses have none: comparing their names is cheaper than eight lookups.
    if headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        for name in &HOP_BY_HOP {
            headers.remove(name);
        }
    }
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        // If an option has bytes beyond ASCII, the other options still hold.
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        // The usual options, which are not header names.
        .filter(|option| {
            !option.eq_ignore_ascii_case(b"keep-alive") && !option.eq_ignore_ascii_case(b"close")
        })
        .filter_map(|option| HeaderName::from_bytes(option).ok())
        .collect()
}

/// Returns `true` if the body is server-sent events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        let essence = value.as_bytes().split(|byte| *byte == b';').next();
        essence
            .unwrap_or_default()
            .trim_ascii()
            .eq_ignore_ascii_case(b"text/event-stream")
    })
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
    fn a_length_stays_only_if_it_is_that_of_the_body() {
        #[track_caller]
        fn check(lengths: &[&'static str], is_kept: bool) {
            let mut map = HeaderMap::new();
            for length in lengths {
                map.append(CONTENT_LENGTH, HeaderValue::from_static(length));
            }
            for_worker_with(&mut map, 70);
            assert_eq!(map.contains_key(CONTENT_LENGTH), is_kept, "{lengths:?}");
        }
        check(&["70"], true);
        for other in ["7", "+70", "070", " 70", "70,70", "700", ""] {
            check(&[other], false);
        }
        check(&["70", "70"], false);
        check(&[], false);
    }

    #[test]
    fn hop_by_hop_headers_are_removed_and_the_others_kept() {
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
