//! Content negotiation and response encoding.

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

/// Returns the format of a body by its media type, ignoring parameters. `x-msgpack` and `vnd.msgpack` are MessagePack
/// too. Without `Content-Type` it is JSON, as clients of the earlier generations sent it, unless a type is `required`.
pub(crate) fn of_body(headers: &HeaderMap, required: bool) -> Result<Format, Refusal> {
    let mut kinds = headers.get_all(CONTENT_TYPE).iter();
    let format = match (kinds.next(), kinds.next()) {
        (None, _) => (!required).then_some(Format::Json),
        (Some(kind), None) => kind.to_str().ok().and_then(exactly),
        (Some(_), Some(_)) => None,
    };
    format.ok_or_else(|| {
        Refusal::because(
            StatusCode::BAD_REQUEST,
            Reason::UnsupportedContentType,
            "Content-Type must be application/msgpack or application/json",
        )
    })
}

/// Returns the format of a media type, ignoring parameters. A browser does not send these types across sites without a
/// preflight. It does send types that only contain such a name, for example `text/plain; json`.
fn exactly(kind: &str) -> Option<Format> {
    let essence = kind.split(';').next().unwrap_or_default().trim();
    match essence.to_ascii_lowercase().as_str() {
        JSON => Some(Format::Json),
        MSGPACK | "application/x-msgpack" | "application/vnd.msgpack" => Some(Format::Msgpack),
        _ => None,
    }
}

/// Returns the format of the answer: the accepted one, else that of the body, else JSON.
pub(crate) fn of_answer(headers: &HeaderMap) -> Format {
    let accepted = header(headers, &ACCEPT).and_then(parse);
    let sent = || header(headers, &CONTENT_TYPE).and_then(parse);
    accepted.or_else(sent).unwrap_or(Format::Json)
}

fn header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Returns the first of the two formats in a list of types.
fn parse(kind: &str) -> Option<Format> {
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

/// Adds a header with the number of instances left out because their feeds are not live. Unlike a member of the body,
/// it fits every shape.
pub(crate) fn with_not_current_count(mut response: Response<Body>, instances: usize) -> Response<Body> {
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
