//! Error bodies: `{"error":{"message","type","param","code"}}` of OpenAI, and
//! `{"type":"error","error":{"type","message"},"request_id"}` of Anthropic.

use serde::Serialize;

/// An error for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ErrorBody<'a> {
    /// Message in one sentence.
    pub message: &'a str,
    /// Error type, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// The request field with the fault.
    pub param: Option<&'a str>,
    /// Stable name for programs.
    pub code: &'a str,
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct AnthropicEnvelope<'a> {
    #[serde(rename = "type")]
    envelope: &'static str,
    error: AnthropicError<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
}

#[derive(Serialize)]
struct AnthropicError<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    message: &'a str,
}

/// Returns the error type of Anthropic's API for a status.
#[must_use]
pub fn anthropic_error_kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

impl ErrorBody<'_> {
    /// Returns the body of an HTTP error in Anthropic's shape. The type must be one of Anthropic's.
    #[must_use]
    pub fn to_anthropic_json(&self, request_id: Option<&str>) -> Vec<u8> {
        let envelope = AnthropicEnvelope {
            envelope: "error",
            error: AnthropicError {
                kind: self.kind,
                message: self.message,
            },
            request_id,
        };
        serde_json::to_vec(&envelope).expect("strings always serialise")
    }

    /// Returns the body of an HTTP error as `application/json`.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&Envelope { error: *self }).expect("strings always serialise")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anthropics_shape_has_the_type_the_message_and_the_request() {
        let error = ErrorBody {
            message: "no \"x\"",
            kind: anthropic_error_kind(404),
            param: Some("model"),
            code: "model_not_found",
        };
        assert_eq!(
            String::from_utf8(error.to_anthropic_json(Some("req-1"))).unwrap(),
            r#"{"type":"error","error":{"type":"not_found_error","message":"no \"x\""},"request_id":"req-1"}"#
        );
    }

    #[test]
    fn has_the_four_fields_in_an_envelope_and_escapes_text() {
        let error = ErrorBody {
            message: "no \"x\"\n",
            kind: "invalid_request_error",
            param: None,
            code: "model_not_found",
        };
        assert_eq!(
            String::from_utf8(error.to_json()).unwrap(),
            r#"{"error":{"message":"no \"x\"\n","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#
        );
    }
}
