//! Validation of request heads: size limits, ambiguous framing, and routing loops.
//!
//! Hyper refuses folded lines, NUL and white space before a colon. `framing` refuses an ambiguous end of a request.
//! This module refuses everything else that workers might read in another way.

use http::header::{HOST, TRANSFER_ENCODING, VIA};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Uri, Version};

use crate::base::reply::Refusal;
use crate::limits::edge_settings::EdgeLimits;

/// Bytes of a header besides its name and value: colon, space and CRLF.
const PER_HEADER: usize = 4;

/// Removes a slash at the end of the path, as engines do.
pub(super) fn trim_slash(uri: &mut Uri) {
    let Some(path) = uri.path().strip_suffix('/').filter(|path| !path.is_empty()) else {
        return;
    };
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    // A valid target without its slash is valid too.
    if let Ok(target) = PathAndQuery::try_from(target) {
        *uri = Uri::from(target);
    }
}

/// Checks a request's head. `via` is the router's own entry, for the detection of loops.
pub(super) fn check<B>(
    request: &Request<B>,
    limits: &EdgeLimits,
    via: Option<&HeaderValue>,
) -> Result<(), Refusal> {
    let target = request.uri().path_and_query();
    if target.is_some_and(|target| target.as_str().len() > limits.url_bytes) {
        return Err(Refusal::UrlTooLong {
            limit: limits.url_bytes,
        });
    }
    let headers = request.headers();
    if headers.len() > limits.headers {
        return Err(Refusal::TooManyHeaders {
            limit: limits.headers,
        });
    }
    let (mut bytes, mut hosts, mut codings) = (0, 0, 0);
    for (name, value) in headers {
        bytes += name.as_str().len() + value.len() + PER_HEADER;
        if *name == HOST {
            hosts += 1;
            if !is_host(value) {
                return Err(Refusal::Host);
            }
        } else if *name == TRANSFER_ENCODING {
            codings += 1;
            // Hyper decodes `chunked` only; any other coding would be taken for the body.
            if codings > 1 || !value.as_bytes().eq_ignore_ascii_case(b"chunked") {
                return Err(Refusal::TransferCoding);
            }
        } else if *name == VIA && via.is_some_and(|own| names(value, own)) {
            return Err(Refusal::Loop);
        }
    }
    if bytes > limits.header_bytes {
        return Err(Refusal::HeadersTooLarge {
            limit: limits.header_bytes,
        });
    }
    // RFC 9112, section 3.2.
    if hosts != 1 && (hosts > 1 || request.version() == Version::HTTP_11) {
        return Err(Refusal::Host);
    }
    Ok(())
}

/// Returns `true` if the value is one host with an optional port. Parsers disagree on `a, b`.
fn is_host(value: &HeaderValue) -> bool {
    let is_of_host = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%[]:".contains(byte);
    !value.is_empty() && value.as_bytes().iter().all(is_of_host)
}

/// Returns `true` if this `Via` has the router's own entry. The whole entry is compared: its pseudonym is unique.
fn names(value: &HeaderValue, own: &HeaderValue) -> bool {
    let mut entries = value.as_bytes().split(|byte| *byte == b',');
    entries.any(|entry| entry.trim_ascii() == own.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_head(version: Version, target: &str, headers: &[(&str, &str)], code: Option<&str>) {
        let via = HeaderValue::from_static("1.1 conductor-1");
        let limits = EdgeLimits {
            url_bytes: 32,
            headers: 4,
            header_bytes: 100,
            ..EdgeLimits::default()
        };
        let mut request = Request::builder().version(version).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let refused = check(&request.body(()).unwrap(), &limits, Some(&via)).err();
        let shown = refused.map(|refusal| format!("{refusal:?}"));
        let is_as_expected = match (&shown, code) {
            (None, None) => true,
            (Some(shown), Some(code)) => shown.starts_with(code),
            _ => false,
        };
        assert!(is_as_expected, "{target} {headers:?}: {shown:?}");
    }

    #[test]
    fn a_slash_at_the_end_of_a_path_is_removed() {
        let check = |target: &str, expected: &str| {
            let mut uri: Uri = target.parse().unwrap();
            trim_slash(&mut uri);
            assert_eq!(uri.to_string(), expected);
        };
        check("/v1/completions/", "/v1/completions");
        check("/v1/completions/?a=/", "/v1/completions?a=/");
        check("http://h/v1/models/", "/v1/models");
        for same in ["/", "/v1", "/v1?a=b/"] {
            check(same, same);
        }
    }

    #[test]
    fn a_head_passes_within_its_limits_and_without_ambiguity() {
        #[track_caller]
        fn h11(target: &str, headers: &[(&str, &str)], code: Option<&str>) {
            check_head(Version::HTTP_11, target, headers, code);
        }
        h11("/v1", &[("host", "a")], None);
        let target = |length: usize| format!("/v1?{}", "a".repeat(length - 4));
        h11(&target(32), &[("host", "a")], None);
        h11(&target(33), &[("host", "a")], Some("UrlTooLong"));
        let many = [("host", "a"), ("x", "1"), ("x", "1"), ("x", "1"), ("x", "1")];
        h11("/v1", &many, Some("TooManyHeaders"));
        let long = "v".repeat(100);
        h11("/v1", &[("host", "a"), ("x", &long)], Some("HeadersTooLarge"));
        h11("/v1", &[], Some("Host"));
        h11("/v1", &[("host", "a"), ("host", "b")], Some("Host"));
        h11("/v1", &[("host", "[::1]:80")], None);
        for host in ["", "a, b", "a,b", "a b", "user@a", "a/b"] {
            h11("/v1", &[("host", host)], Some("Host"));
        }
        check_head(Version::HTTP_10, "/v1", &[], None);
        check_head(
            Version::HTTP_10,
            "/v1",
            &[("host", "a"), ("host", "a")],
            Some("Host"),
        );
    }

    #[test]
    fn only_chunked_bodies_pass() {
        let check = |codings: &[&str], code| {
            let mut headers = vec![("host", "a")];
            headers.extend(codings.iter().map(|coding| ("transfer-encoding", *coding)));
            check_head(Version::HTTP_11, "/v1", &headers, code);
        };
        check(&["Chunked"], None);
        check(&["gzip, chunked"], Some("TransferCoding"));
        check(&["identity", "chunked"], Some("TransferCoding"));
        check(&["chunked", "chunked"], Some("TransferCoding"));
    }

    #[test]
    fn a_request_that_was_here_before_is_refused_and_that_of_another_router_is_not() {
        let check = |via, code| check_head(Version::HTTP_11, "/v1", &[("host", "a"), ("via", via)], code);
        check("1.1 conductor-2", None);
        check("1.1 conductor-11", None);
        check("1.0 fred, 1.1 conductor-1", Some("Loop"));
    }
}
