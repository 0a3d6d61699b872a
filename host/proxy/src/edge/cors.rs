//! Browsers that ask on behalf of pages of other origins: which pages may, and the answers to their preflights
//! (<https://fetch.spec.whatwg.org/#http-cors-protocol>).

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, ORIGIN,
    VARY,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};

/// What clients of the API need beside what is always allowed.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "x-request-id, retry-after, retry-after-ms, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, \
     x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, \
     x-conductor-worker, x-conductor-prefill-worker, x-conductor-policy, x-conductor-matched-tokens",
);
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");

/// Which pages may ask, and how. Credentials that browsers keep by themselves (cookies) are never allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsSpec {
    /// As `Origin` has them; none: any.
    pub origins: Option<Vec<HeaderValue>>,
    /// Headers a page may send, as a preflight's answer lists them.
    pub headers: HeaderValue,
    /// Seconds for which a browser may remember a preflight's answer.
    pub max_age: HeaderValue,
}

impl CorsSpec {
    /// The origin of a request, as its answer may name it.
    pub(super) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        match &self.origins {
            None => Some(HeaderValue::from_static("*")),
            Some(origins) => origins.contains(origin).then(|| origin.clone()),
        }
    }

    /// The answer to a preflight; none where the request is none.
    pub(super) fn preflight<B, A: Default>(&self, request: &Request<B>) -> Option<Response<A>> {
        let headers = request.headers();
        let asks = *request.method() == Method::OPTIONS
            && headers.contains_key(ORIGIN)
            && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if !asks {
            return None;
        }
        let mut answer = Response::new(A::default());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        let told = answer.headers_mut();
        // Without these headers a browser does not go on.
        if let Some(origin) = self.allowed(headers) {
            told.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            told.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            told.insert(ACCESS_CONTROL_ALLOW_HEADERS, self.headers.clone());
            told.insert(ACCESS_CONTROL_MAX_AGE, self.max_age.clone());
        }
        self.vary(told);
        Some(answer)
    }

    /// Says in an answer that a page may read it. What a worker said of it does not count.
    pub(super) fn mark(&self, origin: Option<HeaderValue>, answer: &mut HeaderMap) {
        match origin {
            Some(origin) => {
                answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
                answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
            }
            None => {
                answer.remove(ACCESS_CONTROL_ALLOW_ORIGIN);
            }
        }
        self.vary(answer);
    }

    /// Where the answer depends on who asks, caches must know.
    fn vary(&self, answer: &mut HeaderMap) {
        if self.origins.is_some() {
            answer.append(VARY, HeaderValue::from_static("origin"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(origins: Option<&[&'static str]>) -> CorsSpec {
        CorsSpec {
            origins: origins.map(|origins| origins.iter().map(|o| HeaderValue::from_static(o)).collect()),
            headers: HeaderValue::from_static("authorization"),
            max_age: HeaderValue::from_static("60"),
        }
    }

    #[track_caller]
    fn check(spec: &CorsSpec, origin: &str, expected: Option<&str>) {
        let preflight = Request::builder()
            .method(Method::OPTIONS)
            .header(ORIGIN, origin)
            .header(ACCESS_CONTROL_REQUEST_METHOD, "POST")
            .body(())
            .unwrap();
        let answer: Response<()> = spec.preflight(&preflight).unwrap();
        let allowed = answer.headers().get(ACCESS_CONTROL_ALLOW_ORIGIN);
        assert_eq!(allowed.map(|value| value.to_str().unwrap()), expected);
        let mut headers = HeaderMap::new();
        headers.insert(
            ACCESS_CONTROL_ALLOW_ORIGIN,
            HeaderValue::from_static("the worker's"),
        );
        spec.mark(spec.allowed(preflight.headers()), &mut headers);
        let allowed = headers.get(ACCESS_CONTROL_ALLOW_ORIGIN);
        assert_eq!(allowed.map(|value| value.to_str().unwrap()), expected);
    }

    #[test]
    fn a_page_may_ask_from_a_listed_origin_or_from_any() {
        let listed = spec(Some(&["https://a.example"]));
        check(&listed, "https://a.example", Some("https://a.example"));
        check(&listed, "https://b.example", None);
        check(&spec(None), "https://b.example", Some("*"));
    }

    #[test]
    fn a_plain_options_request_is_no_preflight() {
        let request = Request::builder().method(Method::OPTIONS).body(()).unwrap();
        assert!(spec(None).preflight::<_, ()>(&request).is_none());
    }
}
