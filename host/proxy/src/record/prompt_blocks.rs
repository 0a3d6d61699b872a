//! The blocks of a recorded prompt, by which its beginning is known again in others.

use std::num::NonZeroU32;

use super::line::BLOCK_HASH_BYTES;
use crate::context::HashedPrompt;

/// The ends of the chained hashes of a prompt's complete blocks, one after the other.
#[derive(Debug)]
pub(super) struct PromptBlocks {
    pub(super) block_tokens: NonZeroU32,
    pub(super) hashes: Box<[u8]>,
}

impl PromptBlocks {
    /// Those of a prompt, in blocks of so many tokens.
    pub(super) fn of(prompt: &HashedPrompt, block_tokens: NonZeroU32) -> Self {
        let mut prompt = prompt.lock();
        let hashes = prompt.hashes(block_tokens.get(), usize::MAX);
        let mut ends = Vec::with_capacity(hashes.len() * BLOCK_HASH_BYTES);
        for hash in hashes {
            ends.extend_from_slice(&hash.to_be_bytes()[size_of::<u64>() - BLOCK_HASH_BYTES..]);
        }
        Self {
            block_tokens,
            hashes: ends.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(tokens: impl Iterator<Item = u32>) -> Vec<u8> {
        let prompt = HashedPrompt::new(tokens.collect(), None, None);
        PromptBlocks::of(&prompt, const { NonZeroU32::new(4).unwrap() })
            .hashes
            .into()
    }

    #[test]
    fn prompts_have_the_same_blocks_as_far_as_they_are_the_same() {
        let (one, longer) = (blocks(0..11), blocks(0..20));
        assert_eq!(one.len(), 2 * BLOCK_HASH_BYTES, "what is no block has no hash");
        assert_eq!(one, longer[..one.len()]);
        let other = blocks((0..4).map(|_| 7).chain(4..11));
        assert_ne!(
            one[BLOCK_HASH_BYTES..],
            other[BLOCK_HASH_BYTES..],
            "each stands for all before it"
        );
    }
}
