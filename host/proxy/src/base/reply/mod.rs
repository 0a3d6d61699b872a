//! HTTP error responses: status, stable code and public message, in the shape that the endpoint's clients expect.
//!
//! Internal causes go to the log.

mod refusal;

use bytes::Bytes;
use http::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE,
};
use http::{Response, StatusCode};
use inference_api::{Endpoint, ErrorBody, ErrorShape, anthropic_error_kind, error_event};
use tracing::debug;

use self::refusal::{INVALID, SERVER};
pub(crate) use self::refusal::{Limited, Refusal, TooSlow, cut};
use crate::base::headers::X_CONDUCTOR_POLICY;

/// `retry-after` in milliseconds, which OpenAI's clients prefer.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Returns the response to a refused request, in OpenAI's shape.
pub(crate) fn refuse(refusal: &Refusal) -> Response<Bytes> {
    refuse_in(ErrorShape::OpenAi, None, refusal)
}

/// Returns the response to a refused request, in the shape of its path. Anthropic's shape contains the request id.
pub(crate) fn refuse_in(shape: ErrorShape, id: Option<&HeaderValue>, refusal: &Refusal) -> Response<Bytes> {
    if let Refusal::Relayed(response) = refusal {
        return (**response).clone();
    }
    let (status, kind, code) = refusal.class();
    // Faults of workers were logged where they happened.
    debug!(%status, code, error = refusal as &dyn std::error::Error, "request refused");
    let message = refusal.to_string();
    let of_model = matches!(refusal, Refusal::ModelNotFound { .. } | Refusal::ModelMissing);
    let param = of_model.then_some("model");
    let body = ErrorBody {
        message: &message,
        kind: kind_in(shape, status, kind),
        param,
        code,
    };
    let body = match shape {
        ErrorShape::Anthropic => body.to_anthropic_json(id.and_then(|id| id.to_str().ok())),
        ErrorShape::OpenAi | ErrorShape::Responses => body.to_json(),
    };
    let mut response = json(status, body);
    let headers = response.headers_mut();
    if let Some(after) = refusal.retry_after() {
        headers.insert(
            RETRY_AFTER,
            HeaderValue::from(after.as_millis().div_ceil(1_000) as u64),
        );
        headers.insert(RETRY_AFTER_MS, HeaderValue::from(after.as_millis() as u64 + 1));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Refusal::UpgradeRequired { .. } = refusal {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    if let Refusal::WrongMethod { allow, .. } = refusal {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    if let Refusal::Rejected {
        policy: Some(policy), ..
    } = refusal
    {
        headers.insert(X_CONDUCTOR_POLICY, policy.clone());
    }
    response
}

/// Returns the type of an error in a shape.
fn kind_in(shape: ErrorShape, status: StatusCode, kind: &'static str) -> &'static str {
    match shape {
        ErrorShape::Anthropic => anthropic_error_kind(status.as_u16()),
        ErrorShape::OpenAi | ErrorShape::Responses => kind,
    }
}

/// Returns the shape of errors at a path.
pub(crate) fn shape_of(path: &str) -> ErrorShape {
    Endpoint::of_path(path).map_or(ErrorShape::OpenAi, |endpoint| endpoint.spec().errors)
}

/// Returns the error event of a refusal in a stream that has begun, as its first event.
pub(crate) fn event(endpoint: Endpoint, refusal: &Refusal) -> Vec<u8> {
    let (status, kind, code) = refusal.class();
    debug!(%status, code, error = refusal as &dyn std::error::Error, "request refused in its stream");
    let message = refusal.to_string();
    let body = ErrorBody {
        message: &message,
        kind: kind_in(endpoint.spec().errors, status, kind),
        param: None,
        code,
    };
    error_event(endpoint, &body, 0)
}

/// Returns a worker's error as the first event of a stream that has begun.
pub(crate) fn relayed(endpoint: Endpoint, status: StatusCode, message: &str) -> Vec<u8> {
    let kind = if status.is_client_error() { INVALID } else { SERVER };
    let body = ErrorBody {
        message,
        kind: kind_in(endpoint.spec().errors, status, kind),
        param: None,
        code: "worker_refused",
    };
    error_event(endpoint, &body, 0)
}

/// Returns a JSON response of the router's own.
pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// Returns the error event of a stream that cannot continue after that many events.
pub(crate) fn stream_error(
    endpoint: Endpoint,
    status: StatusCode,
    message: &str,
    code: &'static str,
    events: u64,
) -> Vec<u8> {
    let body = ErrorBody {
        message,
        kind: kind_in(endpoint.spec().errors, status, SERVER),
        param: None,
        code,
    };
    error_event(endpoint, &body, events)
}

#[cfg(test)]
mod tests;
