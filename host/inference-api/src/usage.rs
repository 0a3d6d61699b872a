//! Cached-token filter: corrects the number of cached prompt tokens in a relayed answer.
//!
//! A decode engine that received its prompt's cache counts all of it as cached (vLLM 0.32 with `MooncakeConnector`).
//! Clients need the prefill engine's number. The answer is not parsed: the key is searched for, and chunks without it
//! pass uncopied.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;

const CACHED: &[u8] = b"\"cached_tokens\"";
/// Keys of the Messages API, whose `input_tokens` excludes the cached ones.
const CACHED_OF_MESSAGE: &[u8] = b"\"cache_read_input_tokens\"";
const INPUT_OF_MESSAGE: &[u8] = b"\"input_tokens\"";
/// Member with the counts, after the content. Content can have any JSON: the input of a tool.
const USAGE: &[u8] = b"\"usage\"";
/// Most whitespace around the colon; engines write at most one space.
const MAX_SPACE: usize = 4;
/// Digits of a 64-bit number.
const MAX_DIGITS: usize = 20;

/// Replaces the number after every `"cached_tokens":` of an answer, streamed or not, however it is split into chunks.
/// In the Messages API these are `"cache_read_input_tokens":` and `"input_tokens":` after the first `"usage"`. Text of
/// the model cannot match: its quotes are escaped. At most 54 bytes are held back, and only if they may begin a match.
#[derive(Debug)]
pub struct CachedTokensFilter {
    cached: CountKey,
    input: Option<CountKey>,
    /// Key before which nothing is replaced. `None` once it was found.
    gate: Option<Finder<'static>>,
    held: Bytes,
}

/// Key, and the number that replaces the one after it.
#[derive(Debug)]
struct CountKey {
    finder: Finder<'static>,
    number: String,
}

/// Key that was found.
#[derive(Debug, Clone, Copy)]
enum FoundKey {
    Gate,
    Cached,
    Input,
}

/// Bytes at the position of a key.
#[derive(Debug, PartialEq)]
enum KeyMatch {
    /// The key and a whole number, at these offsets.
    Number(Range<usize>),
    /// An incomplete match at the end of the bytes.
    Beginning,
    /// No match.
    Nothing,
}

impl CountKey {
    /// `None` writes `null`.
    fn new(key: &'static [u8], count: Option<u64>) -> Self {
        Self {
            finder: Finder::new(key),
            number: count.map_or_else(|| "null".to_owned(), |count| count.to_string()),
        }
    }
}

impl CachedTokensFilter {
    /// Creates a filter that writes `cached` for every number; `None` writes `null`.
    #[must_use]
    pub fn new(cached: Option<u64>) -> Self {
        Self {
            cached: CountKey::new(CACHED, cached),
            input: None,
            gate: None,
            held: Bytes::new(),
        }
    }

    /// Creates a filter for the Messages API. `input` are the tokens that were not cached. `None` leaves them
    /// unchanged.
    #[must_use]
    pub fn of_message(cached: Option<u64>, input: Option<u64>) -> Self {
        Self {
            cached: CountKey::new(CACHED_OF_MESSAGE, cached),
            input: input.map(|input| CountKey::new(INPUT_OF_MESSAGE, Some(input))),
            gate: Some(Finder::new(USAGE)),
            held: Bytes::new(),
        }
    }

    /// Filters another chunk. The result may be longer or shorter than the input, or empty.
    #[must_use]
    pub fn push(&mut self, chunk: Bytes) -> Bytes {
        let mut bytes = chunk;
        if !self.held.is_empty() {
            let mut joined = BytesMut::with_capacity(self.held.len() + bytes.len());
            joined.extend_from_slice(&self.held);
            joined.extend_from_slice(&bytes);
            bytes = joined.freeze();
            self.held = Bytes::new();
        }
        let mut changed: Vec<u8> = Vec::new();
        let mut copied = 0;
        let mut searched = 0;
        while let Some((found, key)) = self.find(&bytes[searched..]) {
            let start = searched + found;
            let count = match (key, &self.input) {
                (FoundKey::Input, Some(input)) => input,
                (FoundKey::Gate, _) => {
                    searched = start + USAGE.len();
                    self.gate = None;
                    continue;
                }
                _ => &self.cached,
            };
            let length = count.finder.needle().len();
            match number_after_key(&bytes[start..], length) {
                KeyMatch::Number(number) => {
                    changed.extend_from_slice(&bytes[copied..start + number.start]);
                    changed.extend_from_slice(count.number.as_bytes());
                    copied = start + number.end;
                    searched = copied;
                }
                KeyMatch::Beginning => {
                    self.held = bytes.split_off(start);
                    break;
                }
                KeyMatch::Nothing => searched = start + length,
            }
        }
        if self.held.is_empty() {
            let cut = self.cut_key(&bytes[searched..]);
            self.held = bytes.split_off(bytes.len() - cut);
        }
        if copied == 0 {
            return bytes;
        }
        changed.extend_from_slice(&bytes[copied..]);
        changed.into()
    }

    /// Returns the bytes held back at the end of the answer.
    #[must_use]
    pub fn finish(self) -> Bytes {
        self.held
    }

    /// Returns the first key, and its position.
    fn find(&self, bytes: &[u8]) -> Option<(usize, FoundKey)> {
        if let Some(gate) = &self.gate {
            return Some((gate.find(bytes)?, FoundKey::Gate));
        }
        let cached = self.cached.finder.find(bytes);
        // A later number need not be searched for again.
        let before = &bytes[..cached.unwrap_or(bytes.len())];
        let input = self.input.as_ref().and_then(|input| input.finder.find(before));
        match (input, cached) {
            (Some(input), _) => Some((input, FoundKey::Input)),
            (None, cached) => Some((cached?, FoundKey::Cached)),
        }
    }

    /// Returns the length of a truncated key at the end of the bytes.
    fn cut_key(&self, bytes: &[u8]) -> usize {
        let counts = [Some(&self.cached), self.input.as_ref()];
        let counts = counts.into_iter().flatten().map(|count| &count.finder);
        let keys = self.gate.iter().chain(counts.filter(|_| self.gate.is_none()));
        let cut = |key: &Finder<'static>| {
            let key = key.needle();
            let last = &bytes[bytes.len().saturating_sub(key.len() - 1)..];
            // A truncated key has one quote, its first byte.
            match memchr::memrchr(b'"', last) {
                Some(quote) if key.starts_with(&last[quote..]) => last.len() - quote,
                _ => 0,
            }
        };
        keys.map(cut).max().unwrap_or(0)
    }
}

/// Reads on after a key of that length: a colon and a whole number with a valid byte after it.
fn number_after_key(bytes: &[u8], key: usize) -> KeyMatch {
    let Some(colon) = skip(bytes, key, MAX_SPACE, is_space) else {
        return KeyMatch::Beginning;
    };
    if bytes[colon] != b':' {
        return KeyMatch::Nothing;
    }
    let Some(start) = skip(bytes, colon + 1, MAX_SPACE, is_space) else {
        return KeyMatch::Beginning;
    };
    let Some(end) = skip(bytes, start, MAX_DIGITS, |byte| byte.is_ascii_digit()) else {
        return KeyMatch::Beginning;
    };
    if end > start && matches!(bytes[end], b',' | b'}' | b' ' | b'\n' | b'\r' | b'\t') {
        KeyMatch::Number(start..end)
    } else {
        KeyMatch::Nothing
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Returns the first position from `start` on, within `most` bytes, whose byte is not `of` that kind; `None` if the
/// bytes end before.
fn skip(bytes: &[u8], start: usize, most: usize, of: impl Fn(u8) -> bool) -> Option<usize> {
    let end = bytes.len().min(start + most);
    let found = bytes[start..end]
        .iter()
        .position(|&byte| !of(byte))
        .map_or(end, |length| start + length);
    (found < bytes.len()).then_some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chat() -> CachedTokensFilter {
        CachedTokensFilter::new(Some(96))
    }

    fn message() -> CachedTokensFilter {
        CachedTokensFilter::of_message(Some(96), Some(74))
    }

    /// Returns the filtered answer, split at these positions.
    fn filtered(mut filter: CachedTokensFilter, answer: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut rest = Bytes::copy_from_slice(answer);
        let mut out = Vec::new();
        for &cut in cuts {
            let chunk = rest.split_to(cut.min(rest.len()));
            out.extend_from_slice(&filter.push(chunk));
            assert!(filter.held.len() <= 54, "{} bytes held", filter.held.len());
        }
        out.extend_from_slice(&filter.push(rest));
        out.extend_from_slice(&filter.finish());
        out
    }

    #[track_caller]
    fn check(answer: &str, expected: &str) {
        check_in(chat, answer, expected);
    }

    #[track_caller]
    fn check_in(filter: fn() -> CachedTokensFilter, answer: &str, expected: &str) {
        assert_eq!(
            String::from_utf8(filtered(filter(), answer.as_bytes(), &[])).unwrap(),
            expected
        );
        let bytewise = vec![1; answer.len()];
        assert_eq!(
            filtered(filter(), answer.as_bytes(), &bytewise),
            expected.as_bytes(),
            "byte by byte"
        );
        for cut in 0..answer.len() {
            assert_eq!(
                filtered(filter(), answer.as_bytes(), &[cut]),
                expected.as_bytes(),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn the_number_is_replaced_in_streams_and_whole_answers() {
        check(
            "data: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":170}}}\n\ndata: [DONE]\n\n",
            "data: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":96}}}\n\ndata: [DONE]\n\n",
        );
        check(
            "{\"cached_tokens\" : 0, \"a\":1, \"cached_tokens\":\n18446744073709551615}",
            "{\"cached_tokens\" : 96, \"a\":1, \"cached_tokens\":\n96}",
        );
    }

    #[test]
    fn a_messages_cached_and_other_tokens_are_replaced_and_the_input_of_a_tool_is_not() {
        check_in(
            message,
            r#"{"content":[{"type":"tool_use","input":{"input_tokens":5}}],"usage":{"input_tokens":2,"output_tokens":9,"cache_creation_input_tokens":0,"cache_read_input_tokens":168}}"#,
            r#"{"content":[{"type":"tool_use","input":{"input_tokens":5}}],"usage":{"input_tokens":74,"output_tokens":9,"cache_creation_input_tokens":0,"cache_read_input_tokens":96}}"#,
        );
        check_in(
            message,
            "data: {\"message\":{\"usage\":{\"cache_read_input_tokens\": 168,\"input_tokens\": 2}}}\n\ndata: {\"usage\":{\"input_tokens\":2}}\n\n",
            "data: {\"message\":{\"usage\":{\"cache_read_input_tokens\": 96,\"input_tokens\": 74}}}\n\ndata: {\"usage\":{\"input_tokens\":74}}\n\n",
        );
        check_in(
            || CachedTokensFilter::of_message(None, None),
            r#"{"usage":{"input_tokens":2,"cache_read_input_tokens":168}}"#,
            r#"{"usage":{"input_tokens":2,"cache_read_input_tokens":null}}"#,
        );
    }

    #[test]
    fn values_that_are_no_counts_are_kept() {
        for answer in [
            r#"{"cached_tokens":null}"#,
            r#"{"cached_tokens":-1,"cached_tokens":0.0,"cached_tokens":"7"}"#,
            r#"{"text":"\"cached_tokens\":7}"}"#,
            r#"{"token":"cached_tokens","x":1}"#,
            r#"{"cached_tokens":123456789012345678901}"#,
            r#"{"cached_tokens      ":1} "cached_tokens":12"#,
            r#""cached_to"#,
        ] {
            check(answer, answer);
        }
    }

    #[test]
    fn chunks_without_the_key_are_not_copied() {
        let mut filter = CachedTokensFilter::new(Some(1));
        let chunk = Bytes::from_static(b"data: {\"choices\":[{\"text\":\" a\"}]}\n\n");
        let passed = filter.push(chunk.clone());
        assert_eq!((passed.as_ptr(), passed.len()), (chunk.as_ptr(), chunk.len()));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_bytes(
            parts in prop::collection::vec(prop::sample::select(vec![
                "\"cached_tokens\"", "\"cached_tokens\":", "\"cached_", "tokens\":", ":", " ", "\n", "12", "345678901234567890",
                "\"usage\"", "\"input_", "\"cache_read_", "input_tokens\"", "\"", ",", "}", "\\\"", "x", "null", "-",
            ]), 0..24),
            cuts in prop::collection::vec(0_usize..20, 0..24),
        ) {
            let answer = parts.concat();
            for filter in [chat, message] {
                prop_assert_eq!(
                    filtered(filter(), answer.as_bytes(), &cuts),
                    filtered(filter(), answer.as_bytes(), &[])
                );
            }
        }
    }
}
