//! The one server-sent event the router writes itself: an error in a stream that has already begun.
//!
//! Framing: WHATWG HTML, "Server-sent events". The leading blank line ends whatever event the worker left
//! unfinished; where it left none, parsers skip it.

use serde::Serialize;

use crate::endpoint::Endpoint;
use crate::error_body::ErrorBody;

/// The `error` event of the Responses API carries its fields at the top level.
#[derive(Serialize)]
struct ResponsesError<'a> {
    #[serde(rename = "type")]
    event: &'static str,
    code: &'a str,
    message: &'a str,
    param: Option<&'a str>,
}

/// A whole error event, in the form clients of that endpoint raise as an exception.
#[must_use]
pub fn error_event(endpoint: Endpoint, error: &ErrorBody<'_>) -> Vec<u8> {
    let (name, data) = if endpoint == Endpoint::Responses {
        let data = ResponsesError {
            event: "error",
            code: error.code,
            message: error.message,
            param: error.param,
        };
        let data = serde_json::to_vec(&data).expect("strings always serialise");
        ("event: error\n", data)
    } else {
        ("", error.to_json())
    };
    // Serialised JSON has no raw line break, so one `data:` line holds it.
    [b"\n\n", name.as_bytes(), b"data: ", &data, b"\n\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(endpoint: Endpoint, expected: &str) {
        let error = ErrorBody {
            message: "worker\ngone",
            kind: "server_error",
            param: None,
            code: "upstream_broken",
        };
        assert_eq!(
            String::from_utf8(error_event(endpoint, &error)).unwrap(),
            expected
        );
    }

    #[test]
    fn an_error_is_one_event_after_a_blank_line() {
        check(
            Endpoint::ChatCompletions,
            "\n\ndata: {\"error\":{\"message\":\"worker\\ngone\",\"type\":\"server_error\",\"param\":null,\"code\":\"upstream_broken\"}}\n\n",
        );
        check(
            Endpoint::Responses,
            "\n\nevent: error\ndata: {\"type\":\"error\",\"code\":\"upstream_broken\",\"message\":\"worker\\ngone\",\"param\":null}\n\n",
        );
    }
}
