//! The last bytes of an answer, kept while it is relayed.
//!
//! Both facts the router wants of an answer's content stand at its end: whether a stream was finished, and
//! the `usage` with the number of cached prompt tokens. So the chunks are not parsed as they pass; one short
//! copy of their last bytes is.

use memchr::memmem;

/// How much of the end is kept. vLLM 0.32 writes some 450 bytes after `cached_tokens`.
const KEPT: usize = 1024;
/// Compacting only at twice that makes a push one copy of the chunk in nearly every case.
const ROOM: usize = 2 * KEPT;

/// What every OpenAI-style stream but the Responses API's ends with.
const DONE: &[u8] = b"data: [DONE]";
/// The last events of the Responses API.
const RESPONSE_ENDS: [&[u8]; 3] = [
    b"event: response.completed",
    b"event: response.incomplete",
    b"event: response.failed",
];
const CACHED_TOKENS: &[u8] = b"\"cached_tokens\":";
/// In the Responses API the second of each.
const PROMPT_TOKENS: [&[u8]; 2] = [b"\"prompt_tokens\":", b"\"input_tokens\":"];
const OUTPUT_TOKENS: [&[u8]; 2] = [b"\"completion_tokens\":", b"\"output_tokens\":"];

/// Collects the end of a body.
#[derive(Debug, Default)]
pub struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    /// Another chunk of the body passed.
    pub fn push(&mut self, chunk: &[u8]) {
        if chunk.len() >= KEPT {
            self.bytes.clear();
            self.bytes.extend_from_slice(&chunk[chunk.len() - KEPT..]);
            return;
        }
        if self.bytes.len() + chunk.len() > ROOM {
            let surplus = self.bytes.len() - (KEPT - chunk.len()).min(self.bytes.len());
            self.bytes.drain(..surplus);
        }
        self.bytes.extend_from_slice(chunk);
    }

    /// Whether a stream has said all it had to say, so that a connection lost now loses nothing.
    #[must_use]
    pub fn stream_is_finished(&self) -> bool {
        let end = self.bytes.trim_ascii_end();
        end.ends_with(DONE) || RESPONSE_ENDS.iter().any(|last| memmem::find(end, last).is_some())
    }

    /// `usage.prompt_tokens_details.cached_tokens` (`input_tokens_details` in the Responses API), where the
    /// answer has it within its last bytes. Text of the model cannot pass for it: its quotes are escaped.
    #[must_use]
    pub fn cached_tokens(&self) -> Option<u64> {
        self.number(CACHED_TOKENS)
    }

    /// `usage.prompt_tokens` (`input_tokens` in the Responses API), found in the same way.
    #[must_use]
    pub fn prompt_tokens(&self) -> Option<u64> {
        PROMPT_TOKENS.iter().find_map(|key| self.number(key))
    }

    /// `usage.completion_tokens` (`output_tokens` in the Responses API), found in the same way.
    #[must_use]
    pub fn output_tokens(&self) -> Option<u64> {
        OUTPUT_TOKENS.iter().find_map(|key| self.number(key))
    }

    /// The number after the last such key.
    fn number(&self, key: &[u8]) -> Option<u64> {
        // Forwards, because only that way is fast.
        let start = memmem::find_iter(&self.bytes, key).last()? + key.len();
        let rest = self.bytes[start..].trim_ascii_start();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
