//! Prompt of a query, with its block hashes computed on demand.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::hash::{Namespace, local_hash, salt_digest, sequence_hash};

/// A prompt. Hashing stops where the longest match ends. Later queries and
/// [`expect`](crate::SharedPrefixIndex::expect) continue with the hashes computed so far.
#[derive(Debug, Clone)]
pub struct Prompt<'a> {
    /// First tokens, which are not in `tokens` yet.
    beginning: Option<UnreadTokens>,
    tokens: Cow<'a, [u32]>,
    root: Option<u64>,
    salt: Option<u64>,
    /// One chain per queried block size: nearly always one.
    chains: Vec<HashChain>,
}

/// Function that appends tokens to a list.
type ReadTokens = dyn Fn(&mut Vec<u32>) + Send + Sync;

/// First tokens of a prompt, which are read only if not all hashes of their blocks are known.
#[derive(Clone)]
struct UnreadTokens {
    count: usize,
    /// Appends them.
    read: Arc<ReadTokens>,
}

impl fmt::Debug for UnreadTokens {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("UnreadTokens")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct HashChain {
    block_size: u32,
    hashes: Vec<u64>,
}

/// Everything besides the tokens that the hashes of a prompt depend on: prompts with the same first tokens have the
/// same first hashes in one space.
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
            beginning: None,
            tokens: tokens.into(),
            root: Namespace::named(lora).root(),
            salt: cache_salt.filter(|salt| !salt.is_empty()).map(salt_digest),
            chains: Vec::new(),
        }
    }

    /// Sets the number of the tokens before those that it was created from. `read` appends them to a list. It is called
    /// only for a block with such tokens whose hash is not known ([`Self::take_over`]).
    #[must_use]
    pub fn after(self, count: usize, read: impl Fn(&mut Vec<u32>) + Send + Sync + 'static) -> Self {
        let read = Arc::new(read);
        Self {
            beginning: Some(UnreadTokens { count, read }),
            ..self
        }
    }

    /// Returns the number of tokens that are not read yet.
    fn unread(&self) -> usize {
        self.beginning.as_ref().map_or(0, |beginning| beginning.count)
    }

    /// Reads the first tokens, if a block from `from` on has some of them. Returns the number that stays unread.
    fn read(&mut self, from: usize) -> usize {
        let unread = self.unread();
        if from >= unread {
            return unread;
        }
        if let Some(beginning) = self.beginning.take() {
            let mut all = Vec::with_capacity(unread + self.tokens.len());
            (beginning.read)(&mut all);
            all.extend_from_slice(&self.tokens);
            self.tokens = all.into();
        }
        0
    }

    /// Returns the number of complete blocks of this size, which is above 0.
    #[must_use]
    pub fn blocks(&self, block_size: u32) -> usize {
        let tokens = self.unread() + self.tokens.len();
        tokens.checked_div(block_size as usize).unwrap_or(0)
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
        let known = self.chains[at].hashes.len();
        if known < count {
            let width = block_size as usize;
            let unread = self.read(known * width);
            let hashes = &mut self.chains[at].hashes;
            let blocks = self.tokens[known * width - unread..count * width - unread].chunks_exact(width);
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
        &self.chains[at].hashes
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
    use std::sync::atomic::{AtomicUsize, Ordering};

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
    fn a_beginning_is_read_once_and_only_for_blocks_whose_hashes_are_not_known() {
        let tokens: Vec<u32> = (0..100).collect();
        let all = Prompt::new(&tokens, None, Some("salt"))
            .hashes(16, usize::MAX)
            .to_vec();
        let mut before = Prompt::new(&tokens, None, Some("salt"));
        before.hashes(16, 1);
        let (space, _) = before.computed().unwrap();
        for (known, reads) in [(0, 1), (1, 1), (2, 1), (3, 0), (6, 0)] {
            let (first, times) = (tokens[..48].to_vec(), Arc::new(AtomicUsize::new(0)));
            let counted = Arc::clone(&times);
            let read = move |to: &mut Vec<u32>| {
                counted.fetch_add(1, Ordering::Relaxed);
                to.extend(&first);
            };
            let mut prompt = Prompt::new(&tokens[48..], None, Some("salt")).after(48, read);
            assert_eq!(prompt.blocks(16), 6);
            prompt.take_over(space, all[..known].to_vec());
            assert_eq!(prompt.hashes(16, usize::MAX), all, "{known} known");
            assert_eq!(times.load(Ordering::Relaxed), reads, "{known} known");
            let whole = Prompt::new(&tokens, None, Some("salt")).hashes(8, 9).to_vec();
            assert_eq!(prompt.hashes(8, 9), whole, "another block size");
            assert_eq!(times.load(Ordering::Relaxed), 1);
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
        let key = |count| Prompt::new(&tokens, None, None).key(count);
        assert_eq!([key(0), key(15)], [None; 2]);
        assert_eq!([key(16), key(31)], [Some(hashes[0]); 2]);
        assert_eq!([key(96), key(4_096)], [Some(hashes[5]); 2]);
        assert_eq!(prompt.key(64), Some(hashes[3]), "though more is known");
        assert_eq!(Prompt::new(&tokens[..15], None, None).key(64), None);
        assert_ne!(Prompt::new(&tokens, None, Some("salt")).key(64), prompt.key(64));
    }
}
