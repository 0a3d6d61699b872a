//! Prompt of one request, with the block hashes that its decisions have needed so far.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kv_index::Prompt;

/// Prompt that keeps the hashes that were needed so far. Each decision about it continues from the one before.
#[derive(Debug)]
pub(crate) struct HashedPrompt {
    tokens: usize,
    /// Prompt that one decision at a time uses: never waited for, and never held across an await.
    prompt: Mutex<Prompt<'static>>,
}

impl HashedPrompt {
    pub(crate) fn new(tokens: Vec<u32>, lora: Option<&str>, cache_salt: Option<&str>) -> Self {
        Self {
            tokens: tokens.len(),
            prompt: Mutex::new(Prompt::new(tokens, lora, cache_salt)),
        }
    }

    /// Returns the number of its tokens.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Prompt<'static>> {
        self.prompt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both legs and every retry query the same prompt.
    #[test]
    fn a_prompts_blocks_are_hashed_once() {
        let prompt = HashedPrompt::new((0..1_000).collect(), None, None);
        let first = prompt.lock().hashes(16, usize::MAX).to_vec();
        let at = |prompt: &HashedPrompt| prompt.lock().hashes(16, usize::MAX).as_ptr();
        let before = at(&prompt);
        assert_eq!(prompt.lock().hashes(16, 3)[..3], first[..3]);
        assert_eq!(at(&prompt), before);
    }
}
