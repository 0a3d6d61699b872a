//! Usage scanner: finds the token counts in an answer at any position, because engines write data as long as the
//! prompt after them. It searches only for the end of the keys and parses only the numbers.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// Longest key with its number and the space between. This much of earlier chunks is searched again with the next one.
pub(crate) const REACH: usize = 64;
/// Longest number with leading white space.
const LONGEST_NUMBER: usize = 32;

/// Common end of all keys. Text of the model cannot match: its quotes are escaped. JSON of the client can, where the
/// answer repeats it (`tools` of the Responses API); the `usage` of a whole answer comes later and counts.
static KEY_END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"_tokens\":"));

/// Latest token counts.
#[derive(Debug, Default)]
pub(crate) struct UsageScanner {
    /// `usage.prompt_tokens`, `input_tokens` in the Responses API.
    prompt: Option<u64>,
    /// `cache_read_input_tokens` and `cache_creation_input_tokens` of Anthropic's API, which `input_tokens` excludes.
    besides: [Option<u64>; 2],
    /// `usage.completion_tokens`, `output_tokens` in the Responses API.
    pub(crate) output: Option<u64>,
    /// `usage.prompt_tokens_details.cached_tokens`, `input_tokens_details` in the Responses API.
    cached: Option<u64>,
}

impl UsageScanner {
    /// Searches the next bytes, which begin with up to [`REACH`] bytes that were searched before.
    pub(crate) fn scan(&mut self, bytes: &[u8]) {
        for at in KEY_END.find_iter(bytes) {
            let before = &bytes[..at];
            let count = if before.ends_with(b"\"prompt") || before.ends_with(b"\"input") {
                &mut self.prompt
            } else if before.ends_with(b"\"completion") || before.ends_with(b"\"output") {
                &mut self.output
            } else if before.ends_with(b"\"cached") {
                &mut self.cached
            } else if before.ends_with(b"\"cache_read_input") {
                &mut self.besides[0]
            } else if before.ends_with(b"\"cache_creation_input") {
                &mut self.besides[1]
            } else {
                continue;
            };
            let after = &bytes[at + KEY_END.needle().len()..];
            *count = number(&after[..after.len().min(LONGEST_NUMBER)]);
        }
    }

    /// Returns all tokens of the prompt.
    pub(crate) fn prompt_tokens(&self) -> Option<u64> {
        let besides = self.besides.iter().flatten();
        Some(besides.fold(self.prompt?, |sum, tokens| sum.saturating_add(*tokens)))
    }

    /// Returns the prompt's tokens from the cache.
    pub(crate) fn cached_tokens(&self) -> Option<u64> {
        self.cached.or(self.besides[0])
    }
}

/// Parses the leading number.
fn number(bytes: &[u8]) -> Option<u64> {
    let bytes = bytes.trim_ascii_start();
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok()
}
