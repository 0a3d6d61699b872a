//! Conversion of an HTTP/2 head to HTTP/1.1 form, which all later stages use. `h2` resets streams with
//! connection-specific headers or malformed heads (RFC 9113, sections 8.1 to 8.3) before this.

use http::header::{COOKIE, HOST};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Uri, Version};

use crate::base::reply::Refusal;

/// Moves `:authority` to `Host`, reduces the URL to path and query, and joins cookies (RFC 9113, sections 8.3.1 and
/// 8.2.3).
pub(super) fn to_http_1_1<B>(request: &mut Request<B>) -> Result<(), Refusal> {
    if *request.method() == Method::CONNECT {
        return Err(Refusal::WrongMethod {
            path: "*".into(),
            allow: "GET, POST",
        });
    }
    *request.version_mut() = Version::HTTP_11;
    let uri = std::mem::take(request.uri_mut());
    if let Some(authority) = uri.authority() {
        let text = authority.as_str();
        let mut given = request.headers().get_all(HOST).iter();
        if !given.all(|host| host.as_bytes().eq_ignore_ascii_case(text.as_bytes())) {
            return Err(Refusal::Host);
        }
        let host = HeaderValue::from_str(text).map_err(|_| Refusal::Host)?;
        request.headers_mut().insert(HOST, host);
    }
    let root = || PathAndQuery::from_static("/");
    *request.uri_mut() = Uri::from(uri.into_parts().path_and_query.unwrap_or_else(root));
    join_cookies(request);
    Ok(())
}

fn join_cookies<B>(request: &mut Request<B>) {
    let cookies = request.headers().get_all(COOKIE);
    if cookies.iter().nth(1).is_none() {
        return;
    }
    let parts: Vec<&[u8]> = cookies.iter().map(HeaderValue::as_bytes).collect();
    // Joined valid values are a valid value.
    if let Ok(joined) = HeaderValue::from_bytes(&parts.join(&b"; "[..])) {
        request.headers_mut().insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(uri: &str, headers: &[(&str, &str)]) -> Result<Request<()>, Refusal> {
        let mut request = Request::builder().version(Version::HTTP_2).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).unwrap();
        to_http_1_1(&mut request).map(|()| request)
    }

    #[test]
    fn the_authority_takes_the_place_of_host() {
        let request = converted("https://a.example:8443/v1/models?a=b", &[]).unwrap();
        assert_eq!(request.headers()[HOST], "a.example:8443");
        assert_eq!(request.uri(), "/v1/models?a=b");
        assert_eq!(request.version(), Version::HTTP_11);
        let request = converted("https://a.example/", &[("host", "A.example")]).unwrap();
        assert_eq!(request.headers().get_all(HOST).iter().count(), 1);
        let request = converted("/v1", &[("host", "b")]).unwrap();
        assert_eq!(request.headers()[HOST], "b");
    }

    #[test]
    fn an_authority_and_a_host_that_differ_are_refused() {
        let refused = converted("https://a/", &[("host", "b")]);
        assert!(matches!(refused, Err(Refusal::Host)));
        let refused = converted("https://a/", &[("host", "a"), ("host", "b")]);
        assert!(matches!(refused, Err(Refusal::Host)));
    }

    #[test]
    fn cookies_are_joined() {
        let request = converted("https://a/", &[("cookie", "a=1"), ("cookie", "b=2")]).unwrap();
        let cookies: Vec<_> = request.headers().get_all(COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1; b=2"]);
    }

    #[test]
    fn connect_is_not_served() {
        let mut request = Request::builder()
            .method(Method::CONNECT)
            .uri("a:443")
            .body(())
            .unwrap();
        assert!(matches!(
            to_http_1_1(&mut request),
            Err(Refusal::WrongMethod { .. })
        ));
    }
}
