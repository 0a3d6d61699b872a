//! Errors of the admin pages, in the shape that all errors of the router have.

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use axum::http::{Response, StatusCode, Uri};
use inference_api::ErrorBody;
use serde_json::{Value, json};

/// Refusal of a page: status, code and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// A stable name for programs.
    pub(crate) code: &'static str,
    /// Invalid member of the request.
    pub(crate) param: Option<&'static str>,
    /// Reason and cure.
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            param: None,
            message: message.into(),
        }
    }

    /// Adds the member that is at fault.
    pub(crate) fn of(self, param: &'static str) -> Self {
        Self {
            param: Some(param),
            ..self
        }
    }

    /// Returns the refusal of a reload thread that is busy, or gone.
    pub(crate) fn busy() -> Self {
        let message = "the router is busy with other changes, or stops: try again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
    }

    /// Returns the error as a member of a larger answer.
    pub(crate) fn to_value(&self) -> Value {
        json!({ "message": self.message, "type": self.kind(), "param": self.param, "code": self.code })
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::FORBIDDEN => "permission_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// Returns the answer.
    pub(crate) fn into_response(self) -> Response<Body> {
        let body = ErrorBody {
            message: &self.message,
            kind: self.kind(),
            param: self.param,
            code: self.code,
        };
        let mut response = Response::new(Body::from(body.to_json()));
        *response.status_mut() = self.status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

/// Answers other methods on pages that are only read.
pub(crate) async fn only_get(uri: Uri) -> Response<Body> {
    wrong_method(&uri, "GET")
}

/// Answers other methods on pages that replace something.
pub(crate) async fn only_put(uri: Uri) -> Response<Body> {
    wrong_method(&uri, "PUT")
}

/// Answers other methods on pages that change something.
pub(crate) async fn only_post(uri: Uri) -> Response<Body> {
    wrong_method(&uri, "POST")
}

/// Answers other methods on a page that is read and replaced.
pub(crate) async fn only_get_or_put(uri: Uri) -> Response<Body> {
    wrong_method(&uri, "GET, PUT")
}

/// Answers other methods on pages that list things and add one.
pub(crate) async fn only_get_or_post(uri: Uri) -> Response<Body> {
    wrong_method(&uri, "GET, POST")
}

/// Answers other methods on pages that show a thing and remove it.
pub(crate) async fn only_get_or_delete(uri: Uri) -> Response<Body> {
    wrong_method(&uri, "GET, DELETE")
}

fn wrong_method(uri: &Uri, allow: &'static str) -> Response<Body> {
    let message = format!("`{}` takes {allow} only", uri.path());
    let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
    let mut response = refusal.into_response();
    let allow = HeaderValue::from_static(allow);
    response.headers_mut().insert(ALLOW, allow);
    response
}
