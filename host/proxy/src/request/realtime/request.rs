//! Check of the head of a WebSocket request.

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Request, Version};
use inference_api::Endpoint;

use crate::base::reply::Refusal;

/// Returns the refusal of a request to a WebSocket's endpoint that requests no WebSocket (RFC 6455, section 4.1) or has
/// a body. Bytes after such a head would be a body to one reader and frames to another.
pub(crate) fn check<B>(endpoint: Endpoint, request: &Request<B>) -> Result<(), Refusal> {
    let headers = request.headers();
    let is_new_enough = request.version() == Version::HTTP_11;
    if !is_new_enough || !has(headers, &UPGRADE, "websocket") || !has(headers, &CONNECTION, "upgrade") {
        let path = endpoint.path();
        return Err(Refusal::UpgradeRequired { path });
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    if headers.contains_key(TRANSFER_ENCODING) || lengths.any(|length| length.as_bytes() != b"0") {
        return Err(Refusal::UpgradeWithBody);
    }
    Ok(())
}

/// Returns `true` if a header's list has a token.
fn has(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter();
    let mut tokens = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    tokens.any(|given| given.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_head(version: Version, headers: &[(&str, &str)], expected: Option<&str>) {
        let mut request = Request::builder().version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let refused = check(Endpoint::Realtime, &request.body(()).unwrap()).err();
        let name = refused.map(|refusal| format!("{refusal:?}"));
        let name = name.as_deref().and_then(|name| name.split(' ').next());
        assert_eq!(name, expected, "{version:?} {headers:?}");
    }

    #[test]
    fn only_a_websocket_over_http_1_1_is_opened() {
        let required = Some("UpgradeRequired");
        let h11 = Version::HTTP_11;
        let plain = [("connection", "Upgrade"), ("upgrade", "websocket")];
        check_head(h11, &plain, None);
        check_head(
            h11,
            &[("connection", "keep-alive, upgrade"), ("upgrade", "WebSocket")],
            None,
        );
        check_head(Version::HTTP_10, &plain, required);
        check_head(h11, &[("upgrade", "websocket")], required);
        check_head(h11, &[("connection", "Upgrade"), ("upgrade", "h2c")], required);
        check_head(
            h11,
            &[("connection", "close"), ("upgrade", "websocket")],
            required,
        );
        check_head(h11, &[], required);
    }

    #[test]
    fn a_request_for_a_websocket_has_no_body() {
        let with = |name, value, expected| {
            let headers = [("connection", "Upgrade"), ("upgrade", "websocket"), (name, value)];
            check_head(Version::HTTP_11, &headers, expected);
        };
        with("content-length", "0", None);
        with("content-length", "5", Some("UpgradeWithBody"));
        with("content-length", "00", Some("UpgradeWithBody"));
        with("transfer-encoding", "chunked", Some("UpgradeWithBody"));
    }
}
