//! Tail of an answer: its last bytes, kept while it is relayed.
//!
//! The end of a stream shows if it is complete. Chunks are therefore not parsed as they pass; only a short copy of the
//! last bytes is. They are also searched for the `usage`, and counted.

use memchr::memmem;

use crate::usage_scanner::{REACH, UsageScanner};

/// Bytes that are kept.
const KEPT: usize = 1024;
/// Compacting only at that size makes a push one copy of the chunk in most cases. Every open stream has this memory.
const ROOM: usize = KEPT + KEPT / 2;

/// Last event of every OpenAI-style stream except the Responses API's.
const DONE: &[u8] = b"data: [DONE]";
/// Last events of the Responses API, and of Anthropic's Messages API.
const LAST_EVENTS: [&[u8]; 4] = [
    b"event: message_stop",
    b"event: response.completed",
    b"event: response.incomplete",
    b"event: response.failed",
];
/// Estimate without a `usage`: bytes per token of an unstreamed answer.
const BYTES_PER_TOKEN: u64 = 4;

/// Known reasons for the end of an answer.
const FINISH_REASONS: [&str; 11] = [
    "stop",
    "length",
    "tool_calls",
    "function_call",
    "content_filter",
    "abort",
    "error",
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
];

/// Returns the known reason that a JSON string states.
fn reason_at(value: &[u8]) -> Option<&'static str> {
    let text = value.trim_ascii_start().strip_prefix(b"\"")?;
    let text = &text[..memchr::memchr(b'"', text)?];
    FINISH_REASONS
        .into_iter()
        .find(|reason| reason.as_bytes() == text)
}

/// Collects the end of a body.
#[derive(Debug, Default)]
pub struct Tail {
    bytes: Vec<u8>,
    events: EventCounter,
    usage: UsageScanner,
    /// Bytes of the whole body.
    length: u64,
}

/// Counter of server-sent events: runs of lines other than comments, each ended by an empty line.
#[derive(Debug, Default)]
struct EventCounter {
    ended: u64,
    /// The unfinished line.
    line: LineKind,
    /// Start of the unfinished line.
    start: LineStart,
    /// The unfinished event has a line.
    is_begun: bool,
    /// The unfinished event has the name of a last one.
    is_last: bool,
    /// A last event has ended, and no other has begun.
    is_finished: bool,
}

/// First bytes of a line.
#[derive(Debug, Default)]
struct LineStart {
    bytes: [u8; 32],
    length: usize,
}

impl LineStart {
    fn push(&mut self, part: &[u8]) {
        let room = &mut self.bytes[self.length..];
        let taken = part.len().min(room.len());
        room[..taken].copy_from_slice(&part[..taken]);
        self.length += taken;
    }

    /// Returns `true` if the whole line is the name of a last event.
    fn names_last_event(&self) -> bool {
        LAST_EVENTS.contains(&self.bytes[..self.length].trim_ascii_end())
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    #[default]
    Empty,
    Comment,
    Field,
}

impl EventCounter {
    fn push(&mut self, chunk: &[u8]) {
        let mut from = 0;
        for end in memchr::memchr_iter(b'\n', chunk) {
            self.extend_line(&chunk[from..end]);
            self.end_line();
            from = end + 1;
        }
        self.extend_line(&chunk[from..]);
    }

    fn end_line(&mut self) {
        match std::mem::take(&mut self.line) {
            LineKind::Empty if self.is_begun => {
                self.is_begun = false;
                self.ended += 1;
                self.is_finished = std::mem::take(&mut self.is_last);
            }
            LineKind::Field => {
                self.is_begun = true;
                self.is_finished = false;
                self.is_last |= self.start.names_last_event();
            }
            LineKind::Empty | LineKind::Comment => {}
        }
        self.start.length = 0;
    }

    /// The first byte of a line defines its kind.
    fn extend_line(&mut self, part: &[u8]) {
        self.start.push(part);
        if self.line == LineKind::Empty {
            self.line = match part {
                [] | [b'\r'] => LineKind::Empty,
                [b':', ..] => LineKind::Comment,
                _ => LineKind::Field,
            };
        }
    }
}

impl Tail {
    /// Adds a chunk of the body.
    pub fn push(&mut self, chunk: &[u8]) {
        self.events.push(chunk);
        self.length += chunk.len() as u64;
        if chunk.len() < KEPT {
            return self.append(chunk);
        }
        self.append(&chunk[..REACH]);
        self.usage.scan(chunk);
        self.bytes.clear();
        self.bytes.extend_from_slice(&chunk[chunk.len() - KEPT..]);
    }

    /// Adds a chunk that cannot be read.
    pub fn push_unread(&mut self, chunk: &[u8]) {
        self.length += chunk.len() as u64;
    }

    fn append(&mut self, chunk: &[u8]) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(ROOM);
        }
        if self.bytes.len() + chunk.len() > ROOM {
            let kept = (KEPT - chunk.len()).max(REACH).min(self.bytes.len());
            self.bytes.drain(..self.bytes.len() - kept);
        }
        let seen = self.bytes.len().saturating_sub(REACH);
        self.bytes.extend_from_slice(chunk);
        self.usage.scan(&self.bytes[seen..]);
    }

    /// Returns the number of server-sent events so far, without comments. A line may end in CRLF or LF.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events.ended
    }

    /// Returns `true` if a stream is complete, so that losing the connection now loses nothing.
    #[must_use]
    pub fn stream_is_finished(&self) -> bool {
        self.events.is_finished || self.bytes.trim_ascii_end().ends_with(DONE)
    }

    /// Returns the latest `usage.prompt_tokens_details.cached_tokens` (`input_tokens_details` in the Responses API,
    /// `cache_read_input_tokens` in the Messages API).
    #[must_use]
    pub fn cached_tokens(&self) -> Option<u64> {
        self.usage.cached_tokens()
    }

    /// Returns the latest `usage.prompt_tokens` (`input_tokens` in the Responses API, including those of the cache in
    /// the Messages API).
    #[must_use]
    pub fn prompt_tokens(&self) -> Option<u64> {
        self.usage.prompt_tokens()
    }

    /// Returns the latest `usage.completion_tokens` (`output_tokens` in the Responses API).
    #[must_use]
    pub fn output_tokens(&self) -> Option<u64> {
        self.usage.output
    }

    /// Returns the tokens of an answer that was read to its end: from its `usage`, else one per event, else one per
    /// four bytes. A `usage` with only prompt tokens belongs to an answer without any, such as an embedding.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        let none = self.usage.prompt_tokens().map(|_| 0);
        match self.usage.output.or(none) {
            // The Messages API begins its streams with a usage without output.
            Some(0) => self.events.ended,
            Some(stated) => stated,
            None => self.counted_tokens(),
        }
    }

    /// Returns the tokens of an unfinished answer: those that were counted, or more if its `usage` states more. The
    /// Responses API repeats JSON of the client before its `usage`, so that a lower number may be the client's.
    #[must_use]
    pub fn tokens_so_far(&self) -> u64 {
        self.counted_tokens().max(self.usage.output.unwrap_or(0))
    }

    /// Returns the estimated tokens of the answer so far, ignoring its `usage`: one per event, else one per four
    /// bytes.
    #[must_use]
    pub fn counted_tokens(&self) -> u64 {
        match self.events.ended {
            0 => self.length.div_ceil(BYTES_PER_TOKEN),
            events => events,
        }
    }

    /// Returns the reason for the end of the answer, as the engine states it in its last bytes: `finish_reason`, or
    /// `stop_reason` of the Messages API. `None` if there is none, or an unknown one.
    #[must_use]
    pub fn finish_reason(&self) -> Option<&'static str> {
        // Quotes within a text of the answer are escaped in JSON.
        let stated = |member: &[u8]| {
            let starts = memmem::find_iter(&self.bytes, member);
            let reasons = starts.filter_map(|start| reason_at(&self.bytes[start + member.len()..]));
            reasons.last()
        };
        stated(b"\"finish_reason\":").or_else(|| stated(b"\"stop_reason\":"))
    }

    /// Returns the bytes of the body so far.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_reason_for_the_end_is_the_last_known_one() {
        let check = |body: &str, expected| {
            let mut tail = Tail::default();
            tail.push(body.as_bytes());
            assert_eq!(tail.finish_reason(), expected, "{body}");
        };
        check(r#"{"choices":[{"finish_reason": "length"}]}"#, Some("length"));
        check(
            "data: {\"finish_reason\":null}\n\ndata: {\"finish_reason\":\"stop\"}\n\ndata: [DONE]\n\n",
            Some("stop"),
        );
        check(r#"{"delta":{"stop_reason":"end_turn"}}"#, Some("end_turn"));
        check(r#"{"finish_reason":"secret"}"#, None);
        check(r#"{"content":"\"finish_reason\":\"stop\""}"#, None);
        check(r#"{"finish_reason":"#, None);
        check("{}", None);
    }

    fn tail(chunks: &[&str]) -> Tail {
        let mut tail = Tail::default();
        for chunk in chunks {
            tail.push(chunk.as_bytes());
        }
        tail
    }

    #[test]
    fn a_stream_is_finished_by_its_last_event_however_it_is_cut() {
        assert!(tail(&["data: {}\n\ndata: [DO", "NE]\n", "\n"]).stream_is_finished());
        assert!(!tail(&["data: [DONE]\n\n", "data: {}\n\n"]).stream_is_finished());
        assert!(tail(&["event: response.completed\n", "data: {}\n\n"]).stream_is_finished());
        assert!(!tail(&[]).stream_is_finished());
    }

    #[test]
    fn events_are_counted_however_their_lines_end_and_are_cut() {
        let events = |chunks: &[&str]| tail(chunks).events();
        assert_eq!(events(&["data: {}\n\ndata: {}\n\n"]), 2);
        assert_eq!(events(&["data: {}\r\n\r\nevent: a\r\ndata: {}\r\n\r\n"]), 2);
        assert_eq!(events(&["data: {}\n", "\ndata: {}\r", "\n\r", "\nda"]), 2);
        assert_eq!(events(&[": keep-alive\n\n", "\n\n", "data: {}\n"]), 0);
        assert_eq!(events(&[": a\ndata: {}\n\n\n"]), 1);
    }

    #[test]
    fn cached_tokens_are_found_at_the_end_and_never_in_text() {
        assert_eq!(
            tail(&[
                r#""usage":{"prompt_tokens_details":{"cached_"#,
                r#"tokens": 96}}"#
            ])
            .cached_tokens(),
            Some(96)
        );
        assert_eq!(tail(&[r#"{"cached_tokens":null}"#]).cached_tokens(), None);
        assert_eq!(tail(&[r#"{"text":"\"cached_tokens\":7"}"#]).cached_tokens(), None);
        assert_eq!(tail(&["data: [DONE]\n\n"]).cached_tokens(), None);
    }

    #[test]
    fn the_other_counts_of_the_usage_are_found_in_either_apis_words() {
        let chat = tail(&[r#""usage":{"prompt_tokens":10,"total_tokens":14,"completion_tokens":4}"#]);
        assert_eq!((chat.prompt_tokens(), chat.output_tokens()), (Some(10), Some(4)));
        let responses = tail(&[r#""usage":{"input_tokens": 7,"output_tokens": 2}"#]);
        assert_eq!(
            (responses.prompt_tokens(), responses.output_tokens()),
            (Some(7), Some(2))
        );
        assert_eq!(
            (tail(&["{}"]).prompt_tokens(), tail(&["{}"]).output_tokens()),
            (None, None)
        );
    }

    #[test]
    fn a_prompt_of_the_messages_api_counts_what_came_from_the_cache() {
        let start =
            r#"data: {"type":"message_start","message":{"usage":{"input_tokens":100,"output_tokens":0}}}"#;
        let begun = tail(&["event: message_start\n", start, "\n\n"]);
        assert_eq!((begun.prompt_tokens(), begun.tokens()), (Some(100), 1));
        let delta = r#"data: {"usage":{"input_tokens":1,"output_tokens":7,"cache_creation_input_tokens":3,"cache_read_input_tokens":96}}"#;
        let done = tail(&[start, "\n\n", delta, "\n\n"]);
        assert_eq!(
            (done.prompt_tokens(), done.cached_tokens()),
            (Some(100), Some(96))
        );
        assert_eq!((done.output_tokens(), done.tokens()), (Some(7), 7));
    }

    #[test]
    fn a_last_event_ends_a_stream_however_long_it_is_and_only_once_it_is_whole() {
        let name = "event: response.completed\r\n";
        let response = format!("data: {{\"output\":\"{}\"}}\n", "x".repeat(5_000));
        assert!(!tail(&[name]).stream_is_finished());
        assert!(!tail(&[name, &response]).stream_is_finished());
        assert!(tail(&[name, &response, "\n"]).stream_is_finished());
        assert!(!tail(&[name, &response, "\n", "event: error\n"]).stream_is_finished());
        assert!(!tail(&["event: response.completed.not\ndata: {}\n\n"]).stream_is_finished());
    }

    #[test]
    fn the_end_of_a_stream_is_a_line_of_its_own() {
        assert!(tail(&["data: {}\n\nevent: message_st", "op\ndata: {}\n\n"]).stream_is_finished());
        assert!(!tail(&["data: {\"text\":\"event: message_stop\"}\n\n"]).stream_is_finished());
    }

    #[test]
    fn a_usage_is_found_however_much_stands_behind_it_and_however_it_is_cut() {
        let answer = r#"{"choices":[],"usage":{"prompt_tokens":1200,"completion_tokens": 345},"ids":["#;
        let behind = "7,".repeat(5_000);
        for cut in 0..answer.len() {
            let (start, end) = answer.split_at(cut);
            for chunks in [&[start, end, &behind][..], &[start, &format!("{end}{behind}")]] {
                let tail = tail(chunks);
                assert_eq!(
                    (tail.prompt_tokens(), tail.output_tokens()),
                    (Some(1_200), Some(345))
                );
            }
        }
        let single: Vec<String> = answer.chars().map(String::from).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        assert_eq!(tail(&single).output_tokens(), Some(345));
    }

    #[test]
    fn no_answer_is_free() {
        let tokens = |chunks: &[&str]| tail(chunks).tokens();
        assert_eq!(tokens(&[r#"{"usage":{"completion_tokens":7}}"#]), 7);
        assert_eq!(tokens(&["data: {}\n\ndata: {}\n\n"]), 2);
        assert_eq!(tokens(&["{\"text\":\"", "a longer answer\"}"]), 7);
        assert_eq!(
            tokens(&[r#"{"embedding":[1,2,3],"usage":{"prompt_tokens":7}}"#]),
            0
        );
        let mut unread = Tail::default();
        unread.push_unread(&[0; 9]);
        assert_eq!(unread.tokens(), 3);
    }

    #[test]
    fn an_unfinished_answer_counts_no_less_than_its_events_whatever_it_repeats() {
        let created = r#"data: {"response":{"tools":[{"parameters":{"input_tokens":0,"output_tokens":1}}],"usage":null}}"#;
        let stream = tail(&[created, "\n\n", "data: {}\n\ndata: {}\n\n"]);
        assert_eq!((stream.events(), stream.tokens_so_far()), (3, 3));
        let whole = tail(&[
            r#"{"tools":[{"parameters":{"input_tokens":0}}]"#,
            ",\"text\":\"12345678",
        ]);
        assert_eq!(whole.tokens_so_far(), whole.length().div_ceil(4));
        let several = tail(&["data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":9}}\n\n"]);
        assert_eq!(several.tokens_so_far(), 9);
    }

    proptest! {
        #[test]
        fn the_end_is_kept_whatever_the_chunks(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1500), 0..12)) {
            let mut tail = Tail::default();
            for chunk in &chunks {
                tail.push(chunk);
            }
            let all = chunks.concat();
            prop_assert!(tail.bytes.len() <= ROOM);
            prop_assert!(tail.bytes.len() >= all.len().min(KEPT));
            prop_assert!(all.ends_with(&tail.bytes));
        }
    }
}
