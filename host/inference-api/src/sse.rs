//! Error events of streams: the only server-sent event that the router writes itself.
//!
//! Framing: WHATWG HTML, "Server-sent events". The leading blank line ends an event that the worker left unfinished.
//! Otherwise parsers skip it.

use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::endpoint::{Endpoint, ErrorShape};
use crate::error_body::ErrorBody;

/// The `error` event of the Responses API has its fields at the top level.
#[derive(Serialize)]
struct ResponsesError<'a> {
    #[serde(rename = "type")]
    event: &'static str,
    code: &'a str,
    message: &'a str,
    param: Option<&'a str>,
    sequence_number: u64,
}

/// Returns a whole error event, in the form that clients of that endpoint raise as an exception. `events` is the number
/// of the stream's events before it: events of the Responses API are numbered from 0.
#[must_use]
pub fn error_event(endpoint: Endpoint, error: &ErrorBody<'_>, events: u64) -> Vec<u8> {
    let (name, data) = match endpoint.spec().errors {
        ErrorShape::OpenAi => ("", error.to_json()),
        ErrorShape::Responses => {
            let data = ResponsesError {
                event: "error",
                code: error.code,
                message: error.message,
                param: error.param,
                sequence_number: events,
            };
            let data = serde_json::to_vec(&data).expect("strings always serialise");
            ("event: error\n", data)
        }
        ErrorShape::Anthropic => ("event: error\n", error.to_anthropic_json(None)),
    };
    // Serialized JSON has no raw line break, so it fits one `data:` line.
    [b"\n\n", name.as_bytes(), b"data: ", &data, b"\n\n"].concat()
}

/// Returns the error at the beginning of a stream: its status and the body of an answer without a stream. vLLM 0.32
/// sends a failure before the first token in this form, with status 200: `data: {"error": {.., "code": 500}}`; in the
/// Messages API as an event named `error`, without a code.
#[must_use]
pub fn error_in_first_event(chunk: &[u8]) -> Option<(u16, Vec<u8>)> {
    #[derive(Deserialize)]
    struct Failed<'a> {
        #[serde(borrow)]
        error: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Coded {
        code: u16,
    }
    let mut lines = chunk.trim_ascii_start().split(|byte| *byte == b'\n');
    let mut line = lines.next()?;
    if line.trim_ascii_end() == b"event: error" {
        line = lines.next()?;
    }
    let data = line.strip_prefix(b"data:")?.trim_ascii();
    // Other first events are longer and have no such member: they are not parsed.
    memmem::find(&data[..data.len().min(32)], b"\"error\"")?;
    let failed: Failed<'_> = serde_json::from_slice(data).ok()?;
    let code = serde_json::from_str::<Coded>(failed.error.get()).map_or(500, |coded| coded.code);
    Some((code, data.to_vec()))
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
            String::from_utf8(error_event(endpoint, &error, 7)).unwrap(),
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
            "\n\nevent: error\ndata: {\"type\":\"error\",\"code\":\"upstream_broken\",\"message\":\"worker\\ngone\",\"param\":null,\"sequence_number\":7}\n\n",
        );
    }

    #[test]
    fn an_error_of_the_messages_api_is_a_named_event() {
        check(
            Endpoint::Messages,
            "\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"server_error\",\"message\":\"worker\\ngone\"}}\n\n",
        );
        let failed = b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"internal_error\",\"message\":\"m\"}}\n\n";
        let (status, body) = error_in_first_event(failed).unwrap();
        assert_eq!(status, 500);
        assert!(body.starts_with(b"{\"type\":\"error\"") && body.ends_with(b"}}"));
        let begun = b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n";
        assert_eq!(error_in_first_event(begun), None);
    }

    #[test]
    fn a_stream_that_begins_with_an_error_is_distinguished_from_one_that_begins() {
        let failed =
            br#"data: {"error": {"message": "m", "type": "InternalServerError", "param": null, "code": 503}}

data: [DONE]

"#;
        let (status, body) = error_in_first_event(failed).unwrap();
        assert_eq!(status, 503);
        assert!(body.starts_with(b"{") && body.ends_with(b"}"));
        assert_eq!(error_in_first_event(br#"data: {"error":"x"}"#).unwrap().0, 500);
        for begun in [
            &br#"data: {"id":"1","choices":[{"text":"\"error\""}]}"#[..],
            b": ping",
            b"",
            br#"data: {"error":"cut o"#,
        ] {
            assert_eq!(error_in_first_event(begun), None);
        }
    }
}
