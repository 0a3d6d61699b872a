//! Event stream of a router (`text/event-stream`).

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::time::timeout;
use worker_client::WorkerBody;

use super::error::RemoteError;
use super::printable::printable;

/// Longest silence. The router ends one with a comment every 15 s.
const SILENCE: Duration = Duration::from_secs(45);
/// Longest event, in bytes.
const LONGEST: usize = 32 << 20;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamEvent {
    /// Name.
    pub name: String,
    /// Data.
    pub data: Value,
}

/// Open event stream.
#[derive(Debug)]
pub struct EventStream {
    url: String,
    body: WorkerBody,
    received: Vec<u8>,
}

impl EventStream {
    pub(super) fn new(url: String, body: WorkerBody) -> Self {
        let received = Vec::new();
        Self { url, body, received }
    }

    /// Returns the next event.
    ///
    /// # Errors
    /// [`RemoteError::Stream`], if the stream ends.
    pub async fn next(&mut self) -> Result<StreamEvent, RemoteError> {
        loop {
            if let Some(event) = take_event(&mut self.received) {
                return Ok(event);
            }
            let bytes = self.more().await.map_err(|cause| RemoteError::Stream {
                url: self.url.clone(),
                cause,
            })?;
            self.received.extend_from_slice(&bytes);
        }
    }

    /// Returns the next event of a name.
    ///
    /// # Errors
    /// [`RemoteError::Stream`], if the stream ends.
    pub async fn next_of(&mut self, name: &str) -> Result<Value, RemoteError> {
        loop {
            let event = self.next().await?;
            if event.name == name {
                return Ok(event.data);
            }
        }
    }

    async fn more(&mut self) -> Result<Bytes, String> {
        if self.received.len() > LONGEST {
            return Err(format!("an event has more than {LONGEST} bytes"));
        }
        match timeout(SILENCE, self.body.frame()).await {
            Err(_) => Err(format!("it was silent for {SILENCE:?}")),
            Ok(None) => Err("the router ended it".to_owned()),
            Ok(Some(Err(error))) => Err(observability::error_chain(&error)),
            Ok(Some(Ok(frame))) => Ok(frame.into_data().unwrap_or_default()),
        }
    }
}

/// Takes the first whole event that has data.
fn take_event(received: &mut Vec<u8>) -> Option<StreamEvent> {
    loop {
        let end = received.windows(2).position(|pair| pair == b"\n\n")?;
        let block: Vec<u8> = received.drain(..end + 2).collect();
        let block = String::from_utf8_lossy(&block);
        let field = |name: &str| {
            let mut lines = block.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        let data = field("data").and_then(|data| serde_json::from_str(data).ok());
        if let (Some(name), Some(data)) = (field("event"), data) {
            return Some(StreamEvent {
                name: name.trim().to_owned(),
                data: printable(data),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_taken_whole_and_comments_are_left_out() {
        let mut received = b"retry: 2000\n\n:\n\nevent: fleet\ndata: {\"a\": 1}\n\nevent: cha".to_vec();
        let event = take_event(&mut received).unwrap();
        assert_eq!((&*event.name, &event.data), ("fleet", &json!({ "a": 1 })));
        assert!(take_event(&mut received).is_none());
        received.extend_from_slice(b"nges\ndata: [\"\\u001b[2J\"]\n\n");
        let event = take_event(&mut received).unwrap();
        assert_eq!((&*event.name, &event.data), ("changes", &json!(["\\u{1b}[2J"])));
    }
}
