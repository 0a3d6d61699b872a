//! Bodies of requests: collected within a length and a time, and read as JSON objects.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// Limits of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimits {
    /// Longest body in bytes.
    pub(crate) longest: usize,
    /// Time for the body to arrive.
    pub(crate) time: Duration,
}

impl BodyLimits {
    /// Limits of a command: a small JSON object.
    pub(crate) const COMMAND: Self = Self {
        longest: 16 << 10,
        time: Duration::from_secs(10),
    };

    /// Returns the limits of an upload or a query, which arrives slowly from far away.
    pub(crate) const fn slow(longest: usize) -> Self {
        Self {
            longest,
            time: Duration::from_secs(60),
        }
    }

    /// Collects a body.
    pub(crate) async fn collect(self, body: Body) -> Result<Bytes, Refusal> {
        let Self { longest, time } = self;
        let collected = tokio::time::timeout(time, to_bytes(body, longest)).await;
        let collected = collected.map_err(|_| {
            let message = "the request body did not arrive in time";
            Refusal::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message)
        })?;
        collected.map_err(|_| {
            let message = format!("the request body is longer than {longest} bytes, or was broken off");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
        })
    }
}

/// Returns the members of a JSON object. The refusal has the place of a mistake, and quotes nothing of the body.
pub(crate) fn object(body: &[u8], example: &str) -> Result<Map<String, Value>, Refusal> {
    members(body, example)
}

/// Returns the members of a JSON object as they are written or as values, like [`object`].
pub(crate) fn members<'b, T: Deserialize<'b>>(body: &'b [u8], example: &str) -> Result<T, Refusal> {
    let error = match serde_json::from_slice(body) {
        Ok(members) => return Ok(members),
        Err(error) => error,
    };
    let why = match error.classify() {
        Category::Data => "the body is not a JSON object".to_owned(),
        _ => format!(
            "the body cannot be read as JSON at line {}, column {}",
            error.line(),
            error.column()
        ),
    };
    let message = format!("{why}; send for example {example}");
    Err(Refusal::new(StatusCode::BAD_REQUEST, "invalid_json", message))
}

/// Returns the refusal of an invalid member of the body.
pub(crate) fn invalid(param: &'static str, message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "parameter_invalid", message).of(param)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_is_collected_up_to_its_limit() {
        let limits = BodyLimits {
            longest: 4,
            ..BodyLimits::COMMAND
        };
        assert_eq!(limits.collect(Body::from("1234")).await.unwrap(), "1234");
        let refused = limits.collect(Body::from("12345")).await.unwrap_err();
        assert_eq!(refused.code, "body_too_large");
    }

    #[test]
    fn a_refused_body_is_not_quoted() {
        let refused = object(b"{\"prompt\": secret}", "{}").unwrap_err();
        assert!(
            refused.message.contains("line 1, column 12") && !refused.message.contains("secret"),
            "{}",
            refused.message
        );
        assert_eq!(object(b"[1]", "{}").unwrap_err().code, "invalid_json");
    }
}
