//! Cross-origin requests of browsers (CORS): allowed origins, and responses to preflights
//! (<https://fetch.spec.whatwg.org/#http-cors-protocol>).

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName, ORIGIN, VARY,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};

/// Response headers that API clients need besides those that are always exposed.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "x-request-id, request-id, retry-after, retry-after-ms, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, \
     x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, \
     x-conductor-worker, x-conductor-prefill-worker, x-conductor-policy, x-conductor-matched-tokens",
);
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// CORS headers that are removed from a worker's answer: they could allow more than the configuration does.
static OF_WORKERS: [HeaderName; 6] = [
    ACCESS_CONTROL_ALLOW_CREDENTIALS,
    ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS,
    ACCESS_CONTROL_MAX_AGE,
];

/// Allowed origins, headers and preflight lifetime. Cookies and other credentials of the browser are never allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsSpec {
    /// Allowed values of `Origin`; `None` allows any.
    pub origins: Option<Vec<HeaderValue>>,
    /// Request headers that a page may send, in the form of `Access-Control-Allow-Headers`.
    pub headers: HeaderValue,
    /// Lifetime of a preflight's response in seconds.
    pub max_age: HeaderValue,
}

impl CorsSpec {
    /// Returns the origin to allow in the response, if the request's origin is allowed.
    pub(crate) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        match &self.origins {
            None => Some(HeaderValue::from_static("*")),
            Some(origins) => origins.contains(origin).then(|| origin.clone()),
        }
    }

    /// Answers a preflight. Returns `None` if the request is not a preflight.
    pub(crate) fn preflight<B, A: Default>(&self, request: &Request<B>) -> Option<Response<A>> {
        let headers = request.headers();
        let is_preflight = *request.method() == Method::OPTIONS
            && headers.contains_key(ORIGIN)
            && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if !is_preflight {
            return None;
        }
        let mut answer = Response::new(A::default());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        let answer_headers = answer.headers_mut();
        // A browser stops at a response without these headers.
        if let Some(origin) = self.allowed(headers) {
            answer_headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            answer_headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            answer_headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, self.headers.clone());
            answer_headers.insert(ACCESS_CONTROL_MAX_AGE, self.max_age.clone());
        }
        self.vary(answer_headers);
        Some(answer)
    }

    /// Adds the CORS headers of an allowed origin to a response. A worker's own are removed.
    pub(crate) fn mark(&self, origin: Option<HeaderValue>, answer: &mut HeaderMap) {
        for name in &OF_WORKERS {
            answer.remove(name);
        }
        if let Some(origin) = origin {
            answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
        self.vary(answer);
    }

    /// Adds `Vary: Origin` if the response depends on the origin, so that caches keep the variants apart.
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
        for name in &OF_WORKERS {
            headers.insert(name, HeaderValue::from_static("the worker's"));
        }
        spec.mark(spec.allowed(preflight.headers()), &mut headers);
        assert!(
            headers.values().all(|value| value != "the worker's"),
            "{headers:?}"
        );
        assert!(!headers.contains_key(ACCESS_CONTROL_ALLOW_CREDENTIALS));
        let allowed = headers.get(ACCESS_CONTROL_ALLOW_ORIGIN);
        assert_eq!(allowed.map(|value| value.to_str().unwrap()), expected);
    }

    #[test]
    fn a_page_may_send_from_a_listed_origin_or_from_any() {
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
