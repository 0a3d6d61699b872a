//! Errors in the shape every OpenAI client reads: `{"error":{"message","type","param","code"}}`.

use serde::Serialize;

/// One error, as shown to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ErrorBody<'a> {
    /// One sentence for a person.
    pub message: &'a str,
    /// The class of the error, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// The field of the request that is at fault.
    pub param: Option<&'a str>,
    /// A stable name for programs.
    pub code: &'a str,
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: ErrorBody<'a>,
}

impl ErrorBody<'_> {
    /// The body of an HTTP error, `application/json`.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&Envelope { error: *self }).expect("strings always serialise")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
