//! The numbers of tokens that an answer tells of itself, wherever in it they stand: engines write more behind them, as long as the
//! prompt. The bytes are searched for the end of the keys alone, and nothing is parsed but the numbers.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// Longest key with its number, and what may stand between; so much of what passed is looked at again with what follows.
pub(crate) const REACH: usize = 64;
/// Longest number, with white space before it.
const LONGEST_NUMBER: usize = 32;

/// How all the keys end. Text of the model cannot pass for one: its quotes are escaped.
static KEY_END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"_tokens\":"));

/// What was told last of each.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// `usage.prompt_tokens`, `input_tokens` in the Responses API.
    prompt: Option<u64>,
    /// `cache_read_input_tokens` and `cache_creation_input_tokens` of Anthropic's, which `input_tokens` leaves out.
    besides: [Option<u64>; 2],
    /// `usage.completion_tokens`, `output_tokens` in the Responses API.
    pub(crate) output: Option<u64>,
    /// `usage.prompt_tokens_details.cached_tokens`, `input_tokens_details` in the Responses API.
    cached: Option<u64>,
}

impl Usage {
    /// Looks into the next bytes, which begin with up to [`REACH`] of those that were looked into before.
    pub(crate) fn look(&mut self, bytes: &[u8]) {
        for at in KEY_END.find_iter(bytes) {
            let before = &bytes[..at];
            let told = if before.ends_with(b"\"prompt") || before.ends_with(b"\"input") {
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
            *told = number(&after[..after.len().min(LONGEST_NUMBER)]);
        }
    }

    /// All tokens of the prompt.
    pub(crate) fn prompt_tokens(&self) -> Option<u64> {
        let besides = self.besides.iter().flatten();
        Some(besides.fold(self.prompt?, |sum, tokens| sum.saturating_add(*tokens)))
    }

    /// Those of them that came from the cache.
    pub(crate) fn cached_tokens(&self) -> Option<u64> {
        self.cached.or(self.besides[0])
    }
}

/// The number at the beginning.
fn number(bytes: &[u8]) -> Option<u64> {
    let bytes = bytes.trim_ascii_start();
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok()
}
