//! Cache events and block hashes, independent of the wire format.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A change of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CacheEvent {
    /// Consecutive blocks of one chain were filled.
    Stored(Stored),
    /// One block was evicted.
    Removed(u64),
    /// The cache was cleared.
    Cleared,
}

/// Blocks that were filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    /// One hash per block.
    pub(crate) hashes: Vec<u64>,
    /// Hash of the block before the first; `None` at the start of a prompt.
    pub(crate) parent: Option<u64>,
    /// `hashes.len()` blocks of tokens.
    pub(crate) tokens: Vec<u32>,
    /// Namespace of the blocks.
    pub(crate) namespace: Namespace,
}

/// A LoRA adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Adapter {
    /// The engine's adapter number, from 1.
    pub(crate) id: u32,
    /// The adapter's name in requests.
    pub(crate) name: Arc<str>,
}

/// Inputs of a block's content besides its tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Namespace {
    /// Part of every block.
    pub(crate) adapter: Option<Adapter>,
    /// Part of the first block only, and of later ones through the chain.
    pub(crate) salt: Option<Arc<str>>,
}

impl Namespace {
    /// Returns the extra keys of one block in vLLM's order: adapter, then salt.
    pub(crate) fn extra_keys(&self, starts_prompt: bool) -> Vec<&str> {
        let adapter = self.adapter.iter().map(|adapter| &*adapter.name);
        let salt = self.salt.as_deref().filter(|_| starts_prompt);
        adapter.chain(salt).collect()
    }
}

/// Returns the hash of a block: of the hash before it, its tokens and its extra keys, under the engine's own seed.
pub(crate) fn block_hash(seed: u64, parent: Option<u64>, tokens: &[u32], namespace: &Namespace) -> u64 {
    let mut content = Vec::with_capacity(9 + tokens.len() * 4);
    content.push(u8::from(parent.is_some()));
    content.extend(parent.unwrap_or_default().to_le_bytes());
    for token in tokens {
        content.extend(token.to_le_bytes());
    }
    for key in namespace.extra_keys(parent.is_none()) {
        content.extend((key.len() as u64).to_le_bytes());
        content.extend(key.as_bytes());
    }
    xxh3_64_with_seed(&content, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_distinguishes_seed_parent_tokens_salt_and_adapter() {
        let plain = Namespace::default();
        let salted = Namespace {
            salt: Some("s".into()),
            ..Namespace::default()
        };
        let adapted = Namespace {
            adapter: Some(Adapter {
                id: 1,
                name: "s".into(),
            }),
            ..Namespace::default()
        };
        let hashes = [
            block_hash(0, None, &[1, 2], &plain),
            block_hash(1, None, &[1, 2], &plain),
            block_hash(0, Some(0), &[1, 2], &plain),
            block_hash(0, None, &[2, 1], &plain),
            block_hash(0, None, &[1, 2], &salted),
            block_hash(0, Some(0), &[1, 2], &adapted),
        ];
        for (n, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..n].contains(hash), "hash {n}");
        }
        assert_eq!(
            block_hash(0, Some(7), &[1], &salted),
            block_hash(0, Some(7), &[1], &plain)
        );
    }
}
