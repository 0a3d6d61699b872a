//! Client's view of an answer: its text, streamed or not, and its end.

use anyhow::Result;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use crate::client::Stream;

/// An answer to a chat or completions request, read as far as it went.
#[derive(Debug)]
pub struct Seen {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Text of the first choice.
    pub text: String,
    /// End of the answer.
    pub end: End,
}

/// End of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Complete.
    Complete,
    /// An error from the start, with this code.
    Refused(String),
    /// An error event in a stream, with this code, and nothing after it.
    ErrorEvent(String),
    /// Cut off without an error.
    Torn,
}

impl Seen {
    /// Reads an answer to its end.
    ///
    /// # Errors
    /// Where it is neither an answer nor an error of the kind OpenAI clients read.
    pub async fn read(mut stream: Stream) -> Result<Self> {
        let mut body = Vec::new();
        let torn = loop {
            match stream.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        let is_events = stream.headers.get("content-type");
        let is_events = is_events.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let (text, end) = if is_events {
            events(&String::from_utf8(body)?, torn)?
        } else if torn {
            (String::new(), End::Torn)
        } else {
            whole(stream.status, &serde_json::from_slice(&body)?)
        };
        Ok(Self {
            status: stream.status,
            headers: stream.headers,
            text,
            end,
        })
    }

    /// Returns a header's value; empty when it is not there.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

fn whole(status: StatusCode, body: &Value) -> (String, End) {
    if !status.is_success() {
        return (String::new(), End::Refused(code(body)));
    }
    let choice = &body["choices"][0];
    let text = choice["message"]["content"].as_str().or(choice["text"].as_str());
    (text.unwrap_or_default().to_owned(), End::Complete)
}

fn events(body: &str, torn: bool) -> Result<(String, End)> {
    let mut text = String::new();
    let mut end = End::Torn;
    for event in body.split("\n\n").filter(|event| !event.is_empty()) {
        // Whatever follows an end is no end.
        if end != End::Torn {
            return Ok((text, End::Torn));
        }
        let data = event.trim_start_matches("data: ");
        if data == "[DONE]" {
            end = End::Complete;
            continue;
        }
        let Ok(event) = serde_json::from_str::<Value>(data) else {
            // Half an event is what a cut leaves of one.
            continue;
        };
        if event["error"].is_object() {
            end = End::ErrorEvent(code(&event));
            continue;
        }
        let choice = &event["choices"][0];
        let piece = choice["delta"]["content"].as_str().or(choice["text"].as_str());
        text.push_str(piece.unwrap_or_default());
    }
    Ok((text, if torn { End::Torn } else { end }))
}

/// Engines have numbers for codes.
fn code(body: &Value) -> String {
    match &body["error"]["code"] {
        Value::String(code) => code.clone(),
        other => other.to_string(),
    }
}
