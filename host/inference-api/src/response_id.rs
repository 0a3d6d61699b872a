//! Response id finder for the Responses API, in the first bytes of an answer, streamed or whole.

use memchr::memmem::Finder;
use std::sync::LazyLock;

/// Bytes of an answer that are searched. Engines write the id first, also in a stream's first event.
const LOOKED_INTO: usize = 2048;
/// Longest id.
const LONGEST_ID: usize = 128;

/// Text of a client or a model cannot match: its quotes are escaped.
static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"id\":"));

/// Searches the beginning of an answer.
#[derive(Debug, Default)]
pub struct ResponseIdFinder {
    seen: Vec<u8>,
    is_over: bool,
}

impl ResponseIdFinder {
    /// Searches another chunk. Returns the id once, with the chunk that completes it.
    pub fn push(&mut self, chunk: &[u8]) -> Option<String> {
        if self.is_over {
            return None;
        }
        let room = LOOKED_INTO - self.seen.len();
        self.seen.extend_from_slice(&chunk[..chunk.len().min(room)]);
        let found = find(&self.seen);
        self.is_over = found.is_some() || self.seen.len() == LOOKED_INTO;
        if self.is_over {
            self.seen = Vec::new();
        }
        found
    }

    /// Returns `true` once the search is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

fn find(seen: &[u8]) -> Option<String> {
    let at = KEY.find(seen)? + KEY.needle().len();
    let value = seen[at..].trim_ascii_start().strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', &value[..value.len().min(LONGEST_ID + 1)])?;
    let id = std::str::from_utf8(&value[..end]).ok()?;
    is_response_id(id).then(|| id.to_owned())
}

/// Returns `true` if a text can be the id of a response: short, and without characters that need escaping in a path.
#[must_use]
pub fn is_response_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':');
    !text.is_empty() && text.len() <= LONGEST_ID && text.bytes().all(is_plain) && !matches!(text, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, expected: Option<&str>) {
        for cut in 0..=answer.len() {
            let mut finder = ResponseIdFinder::default();
            let (start, end) = answer.as_bytes().split_at(cut);
            let found = finder.push(start).or_else(|| finder.push(end));
            assert_eq!(found.as_deref(), expected, "{answer} cut at {cut}");
            assert!(finder.seen.len() <= LOOKED_INTO);
        }
    }

    #[test]
    fn the_id_is_found_in_whole_answers_and_in_first_events() {
        check(r#"{"id":"resp_1","object":"response"}"#, Some("resp_1"));
        check(
            r#"{"background":false,"error":null, "id" :1,"id": "resp_1"}"#,
            Some("resp_1"),
        );
        check(
            "event: response.created\ndata: {\"response\":{\"id\":\"resp_a-b\",\"x\":1}}\n\n",
            Some("resp_a-b"),
        );
    }

    #[test]
    fn invalid_and_quoted_ids_are_not_found() {
        check(r#"{"instructions":"\"id\":\"resp_1\"","id":7}"#, None);
        check(r#"{"id":"a/b"}"#, None);
        check(r#"{"id":""}"#, None);
        check(&format!(r#"{{"id":"{}"}}"#, "a".repeat(129)), None);
        check(r#"{"id":"resp"#, None);
    }

    #[test]
    fn only_the_beginning_is_looked_into() {
        let mut finder = ResponseIdFinder::default();
        for _ in 0..LOOKED_INTO {
            assert_eq!(finder.push(b"xx"), None);
        }
        assert!(finder.is_over());
        assert_eq!(finder.push(br#""id":"resp_1""#), None);
    }
}
