//! A prompt to be found, and its hashes as far as anything needed them.

use std::borrow::Cow;

use crate::hash::{Namespace, local_hash, salt_digest, sequence_hash};

/// A prompt. Hashing stops where the longest match ends, and what was hashed is kept: asking again, or
/// [expecting](crate::SharedPrefixIndex::expect) the prompt's blocks, goes on from there.
#[derive(Debug, Clone)]
pub struct Prompt<'a> {
    tokens: Cow<'a, [u32]>,
    root: Option<u64>,
    salt: Option<u64>,
    /// One for each block size that was asked for: nearly always one.
    chains: Vec<Chain>,
}

#[derive(Debug, Clone)]
struct Chain {
    block_size: u32,
    hashes: Vec<u64>,
}

impl<'a> Prompt<'a> {
    /// Tokens of the blocks of a [key](Self::key), whatever those of the engines are: every router has the same keys. With vLLM's own default
    /// the index has hashed them already.
    pub const KEY_BLOCK: u32 = 16;

    /// The whole prompt; the adapter's name, none for the base model; the request's `cache_salt`, which engines mix into
    /// the first block. Only complete blocks can match.
    #[must_use]
    pub fn new(tokens: impl Into<Cow<'a, [u32]>>, lora: Option<&str>, cache_salt: Option<&str>) -> Self {
        Self {
            tokens: tokens.into(),
            root: Namespace::named(lora).root(),
            salt: cache_salt.filter(|salt| !salt.is_empty()).map(salt_digest),
            chains: Vec::new(),
        }
    }

    /// The whole prompt.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Complete blocks of this size, above 0.
    #[must_use]
    pub fn blocks(&self, block_size: u32) -> usize {
        self.tokens.len().checked_div(block_size as usize).unwrap_or(0)
    }

    /// The sequence hashes ([`SEQUENCE_HASH_SEED`](crate::SEQUENCE_HASH_SEED)) of the first `count` blocks of this size, above
    /// 0; of all where there are fewer. More where more are known.
    pub fn hashes(&mut self, block_size: u32, count: usize) -> &[u64] {
        let count = count.min(self.blocks(block_size));
        let at = match self
            .chains
            .iter()
            .position(|chain| chain.block_size == block_size)
        {
            Some(at) => at,
            None => {
                self.chains.push(Chain {
                    block_size,
                    hashes: Vec::new(),
                });
                self.chains.len() - 1
            }
        };
        let hashes = &mut self.chains[at].hashes;
        let known = hashes.len();
        if known < count {
            let width = block_size as usize;
            let blocks = self.tokens[known * width..count * width].chunks_exact(width);
            // Apart from the chain, whose links wait for each other, so that the processor does several at once.
            hashes.extend(blocks.map(|block| local_hash(block, None)));
            if known == 0
                && let Some(salt) = self.salt
            {
                hashes[0] = local_hash(&self.tokens[..width], Some(salt));
            }
            let mut parent = if known == 0 {
                self.root
            } else {
                Some(hashes[known - 1])
            };
            for hash in &mut hashes[known..] {
                *hash = sequence_hash(parent, *hash);
                parent = Some(*hash);
            }
        }
        hashes
    }

    /// The sequence hash of the first `tokens` tokens, in whole blocks of [`KEY_BLOCK`](Self::KEY_BLOCK); of all whole blocks where the
    /// prompt is shorter. None where there is no whole one. Its adapter and its salt are part of it.
    pub fn key(&mut self, tokens: usize) -> Option<u64> {
        let count = (tokens / Self::KEY_BLOCK as usize).min(self.blocks(Self::KEY_BLOCK));
        let last = count.checked_sub(1)?;
        self.hashes(Self::KEY_BLOCK, count).get(last).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_the_same_however_many_are_asked_for_at_a_time() {
        let tokens: Vec<u32> = (0..100).collect();
        let all = Prompt::new(&tokens, Some("ad"), Some("salt"))
            .hashes(3, usize::MAX)
            .to_vec();
        assert_eq!(all.len(), 33);
        let mut little = Prompt::new(&tokens, Some("ad"), Some("salt"));
        for count in [0, 1, 2, 7, 20, 33] {
            let known = little.hashes(3, count).to_vec();
            assert_eq!(known[..], all[..count]);
        }
        assert_ne!(Prompt::new(&tokens, None, Some("salt")).hashes(3, 1)[0], all[0]);
        assert_ne!(Prompt::new(&tokens, Some("ad"), None).hashes(3, 1)[0], all[0]);
    }

    #[test]
    fn a_key_is_the_hash_of_the_last_whole_block_within_its_tokens() {
        let tokens: Vec<u32> = (0..100).collect();
        let mut prompt = Prompt::new(&tokens, None, None);
        let hashes = prompt.hashes(16, usize::MAX).to_vec();
        let key = |tokens| Prompt::new(prompt.tokens(), None, None).key(tokens);
        assert_eq!([key(0), key(15)], [None; 2]);
        assert_eq!([key(16), key(31)], [Some(hashes[0]); 2]);
        assert_eq!([key(96), key(4_096)], [Some(hashes[5]); 2]);
        assert_eq!(prompt.key(64), Some(hashes[3]), "though more is known");
        assert_eq!(Prompt::new(&tokens[..15], None, None).key(64), None);
        assert_ne!(Prompt::new(&tokens, None, Some("salt")).key(64), prompt.key(64));
    }
}
