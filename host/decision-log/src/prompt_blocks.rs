//! Block hashes of a recorded prompt, which identify prefixes shared with other prompts.

use std::num::NonZeroU32;

use crate::line::BLOCK_HASH_BYTES;

/// Truncated chained hashes of a prompt's complete blocks, concatenated.
#[derive(Debug)]
pub struct PromptBlocks {
    pub(crate) block_tokens: NonZeroU32,
    pub(crate) hashes: Box<[u8]>,
}

impl PromptBlocks {
    /// Returns the concatenated truncated hashes.
    #[must_use]
    pub fn hashes(&self) -> &[u8] {
        &self.hashes
    }

    /// Truncates the chained hashes of blocks of `block_tokens` tokens.
    #[must_use]
    pub fn of(hashes: &[u64], block_tokens: NonZeroU32) -> Self {
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

    #[test]
    fn hashes_are_truncated_and_concatenated() {
        let blocks = PromptBlocks::of(&[0x0102_0304_0506_0708, 9], const { NonZeroU32::new(4).unwrap() });
        assert_eq!(*blocks.hashes, [3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 9]);
        assert_eq!(blocks.hashes.len(), 2 * BLOCK_HASH_BYTES);
    }
}
