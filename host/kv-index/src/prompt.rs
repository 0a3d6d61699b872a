//! Prompt of a query, with its block hashes computed on demand.

use std::borrow::Cow;

use crate::hash::{Namespace, local_hash, salt_digest, sequence_hash};

/// A prompt. Hashing stops where the longest match ends. Later queries and
/// [`expect`](crate::SharedPrefixIndex::expect) continue with the hashes computed so far.
#[derive(Debug, Clone)]
pub struct Prompt<'a> {
    tokens: Cow<'a, [u32]>,
    root: Option<u64>,
    salt: Option<u64>,
    /// One chain per queried block size: nearly always one.
    chains: Vec<HashChain>,
}

#[derive(Debug, Clone)]
struct HashChain {
    block_size: u32,
    hashes: Vec<u64>,
}

/// Everything besides the tokens that the hashes of a prompt depend on: prompts with the same first tokens have the same
/// first hashes in one space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptSpace {
    /// Tokens of a block, above 0.
    pub block_size: u32,
    /// Digests of adapter and salt. As with hashes of blocks, different ones may be equal by an accident of 64 bits.
    pub inputs: u128,
}

impl<'a> Prompt<'a> {
    /// Block size in tokens of a [key](Self::key). It does not depend on the engines, so all routers have the same
    /// keys. With vLLM's default the index has computed these hashes already.
    pub const KEY_BLOCK: u32 = 16;

    /// Creates a prompt from all its tokens, its adapter (`None` for the base model) and the request's `cache_salt`,
    /// which engines mix into the first block. Only complete blocks can match.
    #[must_use]
    pub fn new(tokens: impl Into<Cow<'a, [u32]>>, lora: Option<&str>, cache_salt: Option<&str>) -> Self {
        Self {
            tokens: tokens.into(),
            root: Namespace::named(lora).root(),
            salt: cache_salt.filter(|salt| !salt.is_empty()).map(salt_digest),
            chains: Vec::new(),
        }
    }

    /// Returns all tokens.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Returns the number of complete blocks of this size, which is above 0.
    #[must_use]
    pub fn blocks(&self, block_size: u32) -> usize {
        self.tokens.len().checked_div(block_size as usize).unwrap_or(0)
    }

    /// Returns the sequence hashes ([`SEQUENCE_HASH_SEED`](crate::SEQUENCE_HASH_SEED)) of the first `count` blocks of
    /// this size, above 0. Returns fewer if the prompt is shorter, more if more are computed.
    pub fn hashes(&mut self, block_size: u32, count: usize) -> &[u64] {
        let count = count.min(self.blocks(block_size));
        let at = match self
            .chains
            .iter()
            .position(|chain| chain.block_size == block_size)
        {
            Some(at) => at,
            None => {
                self.chains.push(HashChain {
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
            // Apart from the chain, whose steps depend on each other, so that the processor computes several in
            // parallel.
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

    /// Returns the hashes computed so far, of the block size that was needed first.
    #[must_use]
    pub fn computed(&self) -> Option<(PromptSpace, &[u64])> {
        let HashChain { block_size, hashes } = self.chains.first()?;
        let space = PromptSpace {
            block_size: *block_size,
            inputs: self.inputs(),
        };
        Some((space, hashes))
    }

    /// Takes over the hashes of the first blocks, computed for a prompt with the same first tokens. Those of another
    /// space are ignored.
    pub fn take_over(&mut self, space: PromptSpace, mut hashes: Vec<u64>) {
        let block_size = space.block_size;
        let is_own = space.inputs == self.inputs() && block_size > 0;
        if is_own && self.chains.iter().all(|chain| chain.block_size != block_size) {
            hashes.truncate(self.blocks(block_size));
            self.chains.push(HashChain { block_size, hashes });
        }
    }

    /// Returns the digests of adapter and salt.
    fn inputs(&self) -> u128 {
        u128::from(self.root.unwrap_or(0)) << 64 | u128::from(self.salt.unwrap_or(0))
    }

    /// Returns the sequence hash of the first `tokens` tokens in whole blocks of [`KEY_BLOCK`](Self::KEY_BLOCK), or of
    /// all whole blocks of a shorter prompt. Returns `None` if there is no whole block. Adapter and salt are part of
    /// it.
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
    fn hashes_are_the_same_however_many_are_requested_at_a_time() {
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
    fn hashes_are_taken_over_by_prompts_of_the_same_space() {
        let tokens: Vec<u32> = (0..100).collect();
        for (lora, salt) in [
            (None, None),
            (Some("ad"), None),
            (None, Some("salt")),
            (Some("ad"), Some("salt")),
        ] {
            let all = Prompt::new(&tokens, lora, salt).hashes(16, usize::MAX).to_vec();
            let mut before = Prompt::new(&tokens[..70], lora, salt);
            assert_eq!(before.computed(), None);
            before.hashes(16, 3);
            let (space, known) = before.computed().unwrap();
            assert_eq!((space.block_size, known), (16, &all[..3]));
            for (other_lora, other_salt) in [(None, None), (Some("ad"), None), (None, Some("salt"))] {
                let mut prompt = Prompt::new(&tokens, other_lora, other_salt);
                let own = prompt.clone().hashes(16, usize::MAX).to_vec();
                // Wrong on purpose, to see whether they are used.
                prompt.take_over(space, vec![7; 2]);
                let is_same = (lora, salt) == (other_lora, other_salt);
                assert_eq!(prompt.hashes(16, 2)[0] == 7, is_same);
                assert_eq!(prompt.hashes(16, usize::MAX)[1..] != own[1..], is_same);
            }
            let mut next = Prompt::new(&tokens, lora, salt);
            next.take_over(space, all[..3].to_vec());
            assert_eq!(next.hashes(16, usize::MAX), all);
            assert_eq!(
                next.hashes(32, usize::MAX),
                Prompt::new(&tokens, lora, salt).hashes(32, 9)
            );
        }
    }

    #[test]
    fn more_hashes_than_blocks_are_not_taken_over() {
        let tokens: Vec<u32> = (0..40).collect();
        let mut prompt = Prompt::new(&tokens, None, None);
        let space = PromptSpace {
            block_size: 16,
            inputs: 0,
        };
        prompt.take_over(space, vec![1; 9]);
        assert_eq!(prompt.hashes(16, usize::MAX), [1; 2]);
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
