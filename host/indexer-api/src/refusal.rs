//! Error responses in upstream's form: status, message, reason, and position in the request.

use std::fmt;

use axum::http::StatusCode;
use serde::Serialize;

use crate::document::{DocumentFault, Format};

/// Error class that clients match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    UnsupportedContentType,
    InvalidMsgpack,
    InvalidJson,
    UnknownField,
    Missing,
    InvalidType,
    NotArray,
    InvalidValue,
    TooLong,
    OutOfRange,
    Unsupported,
    InvalidRegistration,
    BodyTooLarge,
    BodyIncomplete,
    Unauthorized,
    SentByAPage,
    HostNotAllowed,
}

/// Status and body of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Refusal {
    #[serde(skip)]
    pub(crate) status: StatusCode,
    pub(crate) error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<usize>,
}

impl Refusal {
    /// Creates an error of a failed operation. It has no reason, because the request is valid.
    pub(crate) fn plain(status: StatusCode, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
            reason: None,
            field: None,
            index: None,
        }
    }

    pub(crate) fn because(status: StatusCode, reason: Reason, error: impl Into<String>) -> Self {
        Self {
            reason: Some(reason),
            ..Self::plain(status, error)
        }
    }

    /// Creates an error of an invalid field.
    pub(crate) fn bad(reason: Reason, field: &str, error: impl Into<String>) -> Self {
        Self {
            field: Some(field.to_owned()),
            ..Self::because(StatusCode::BAD_REQUEST, reason, error)
        }
    }

    pub(crate) fn at(self, index: usize) -> Self {
        Self {
            index: Some(index),
            ..self
        }
    }

    /// Creates the error of a service that is not registered.
    pub(crate) fn unknown_service(key: impl fmt::Display) -> Self {
        Self::plain(StatusCode::NOT_FOUND, format!("service not found: {key}"))
    }

    pub(crate) fn unknown_field(field: &str) -> Self {
        Self::bad(Reason::UnknownField, field, format!("unknown field: {field}"))
    }

    pub(crate) fn missing(field: &str) -> Self {
        Self::bad(Reason::Missing, field, format!("{field} is required"))
    }

    pub(crate) fn registration(error: impl Into<String>) -> Self {
        Self::because(StatusCode::BAD_REQUEST, Reason::InvalidRegistration, error)
    }

    pub(crate) fn document(format: Format, fault: DocumentFault) -> Self {
        let (reason, malformed, not_a_map) = match format {
            Format::Json => (
                Reason::InvalidJson,
                "Invalid JSON object",
                "request body must be a JSON object",
            ),
            Format::Msgpack => (
                Reason::InvalidMsgpack,
                "Invalid msgpack object",
                "request body must be a msgpack map",
            ),
        };
        let (reason, error) = match fault {
            DocumentFault::Malformed => (reason, malformed.to_owned()),
            DocumentFault::NotAMap => (reason, not_a_map.to_owned()),
            DocumentFault::KeyNotText => (reason, "map keys must be strings".to_owned()),
            DocumentFault::TooManyInts(most) => (
                Reason::TooLong,
                format!("the lists of the request have more than {most} integers"),
            ),
        };
        Self::because(StatusCode::BAD_REQUEST, reason, error)
    }
}
