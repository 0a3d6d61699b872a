//! In which format a request is written and its answer wanted, and writing the answer.

use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use serde::Serialize;
use tracing::error;

use crate::document::Format;
use crate::refusal::{Reason, Refusal};

const JSON: &str = "application/json";
const MSGPACK: &str = "application/msgpack";
const NOT_CURRENT: HeaderName = HeaderName::from_static("x-conductor-not-current");

/// The format of a body. Without a `Content-Type` it is JSON, as clients of the earlier generations sent it; `x-msgpack` and
/// `vnd.msgpack` are msgpack too.
pub(crate) fn of_body(headers: &HeaderMap) -> Result<Format, Refusal> {
    match header(headers, &CONTENT_TYPE) {
        None => Ok(Format::Json),
        Some(kind) => named(kind).ok_or_else(|| {
            Refusal::because(
                StatusCode::BAD_REQUEST,
                Reason::UnsupportedContentType,
                "Content-Type must be application/msgpack or application/json",
            )
        }),
    }
}

/// The format of the answer: what the caller accepts, else what its body was written in, else JSON.
pub(crate) fn of_answer(headers: &HeaderMap) -> Format {
    let accepted = header(headers, &ACCEPT).and_then(named);
    let sent = || header(headers, &CONTENT_TYPE).and_then(named);
    accepted.or_else(sent).unwrap_or(Format::Json)
}

fn header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// The first of the two that is named.
fn named(kind: &str) -> Option<Format> {
    let kind = kind.to_ascii_lowercase();
    match (kind.find("msgpack"), kind.find("json")) {
        (Some(msgpack), Some(json)) if json < msgpack => Some(Format::Json),
        (Some(_), _) => Some(Format::Msgpack),
        (None, Some(_)) => Some(Format::Json),
        (None, None) => None,
    }
}

pub(crate) fn answer(format: Format, status: StatusCode, body: &impl Serialize) -> Response<Body> {
    let (kind, bytes) = match format {
        Format::Json => (JSON, serde_json::to_vec(body).map_err(|error| error.to_string())),
        Format::Msgpack => (
            MSGPACK,
            rmp_serde::to_vec_named(body).map_err(|error| error.to_string()),
        ),
    };
    let (status, bytes) = match bytes {
        Ok(bytes) => (status, bytes),
        Err(error) => {
            error!(error, "an answer could not be written");
            (StatusCode::INTERNAL_SERVER_ERROR, Vec::new())
        }
    };
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Marks an answer that leaves out instances whose feeds are not live, with their number. Unlike a member of the body it fits
/// every shape.
pub(crate) fn with_left_out(mut response: Response<Body>, instances: usize) -> Response<Body> {
    if instances > 0 {
        response
            .headers_mut()
            .insert(NOT_CURRENT, HeaderValue::from(instances));
    }
    response
}

pub(crate) fn refuse(format: Format, refusal: &Refusal) -> Response<Body> {
    answer(format, refusal.status, refusal)
}
