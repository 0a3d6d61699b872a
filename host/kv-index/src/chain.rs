//! Our own identity of a prefix: a hash chained over its blocks' tokens.
//!
//! `h_i = XXH3-64(h_{i-1} as 8 bytes LE || the block's tokens as u32 LE || digest of its extra keys as 8 bytes LE, if
//! any)`, where `h_{-1}` is a root made of the block size and the adapter. Equal hashes mean equal prefixes up to a
//! 64-bit collision: see `host/adr/0004-prefix-identity.md` for what one would cost. XXH3: xxhash.com specification.

use std::hash::{BuildHasherDefault, Hasher};

use routing::{ExtraKey, Lora};
use xxhash_rust::xxh3::xxh3_64;

/// A prefix of whole blocks, the same for every worker. Not to be mixed up with an
/// [`EngineBlockHash`](routing::EngineBlockHash), which means something to one engine only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PrefixHash(u64);

/// Which chains may match: those of one adapter, or of the base model.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Namespace<'a> {
    Base,
    Name(&'a str),
    Id(i64),
}

impl<'a> Namespace<'a> {
    pub(crate) fn of(lora: Option<&'a Lora>) -> Self {
        match lora {
            None => Self::Base,
            Some(Lora::Name(name)) => Self::Name(name),
            Some(Lora::Id(id)) => Self::Id(*id),
        }
    }

    pub(crate) fn named(lora: Option<&'a str>) -> Self {
        lora.map_or(Self::Base, Self::Name)
    }
}

/// Computes chains; keeps its buffer between blocks.
#[derive(Debug, Default)]
pub(crate) struct ChainHasher {
    buffer: Vec<u8>,
}

impl ChainHasher {
    /// What the first block of a chain has for its parent.
    pub(crate) fn root(&mut self, block_size: u32, namespace: Namespace<'_>) -> PrefixHash {
        self.buffer.clear();
        self.buffer.extend_from_slice(&block_size.to_le_bytes());
        match namespace {
            Namespace::Base => self.buffer.push(0),
            Namespace::Name(name) => {
                self.buffer.push(1);
                self.buffer.extend_from_slice(name.as_bytes());
            }
            Namespace::Id(id) => {
                self.buffer.push(2);
                self.buffer.extend_from_slice(&id.to_le_bytes());
            }
        }
        PrefixHash(xxh3_64(&self.buffer))
    }

    /// The prefix that `parent` and one more block make. `extra`: see [`ChainHasher::extra`].
    pub(crate) fn next(&mut self, parent: PrefixHash, tokens: &[u32], extra: Option<u64>) -> PrefixHash {
        self.buffer.clear();
        self.buffer.extend_from_slice(&parent.0.to_le_bytes());
        self.buffer
            .extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
        if let Some(digest) = extra {
            self.buffer.extend_from_slice(&digest.to_le_bytes());
        }
        PrefixHash(xxh3_64(&self.buffer))
    }

    /// The digest of what besides tokens went into a block; none where there is nothing. vLLM puts the adapter's name
    /// first among every block's keys: as the namespace says it already, that one occurrence is left out. Only one: a
    /// salt may read like the adapter's name.
    pub(crate) fn extra(&mut self, keys: &[ExtraKey], namespace: Namespace<'_>) -> Option<u64> {
        let adapter = match namespace {
            Namespace::Name(name) => keys
                .iter()
                .position(|key| matches!(key, ExtraKey::Text(text) if **text == *name)),
            Namespace::Base | Namespace::Id(_) => None,
        };
        self.buffer.clear();
        for (_, key) in keys
            .iter()
            .enumerate()
            .filter(|&(place, _)| Some(place) != adapter)
        {
            match key {
                ExtraKey::Text(text) => self.push_key(0, text.as_bytes()),
                ExtraKey::Int(number) => self.push_key(1, &number.to_le_bytes()),
                ExtraKey::Bytes(bytes) => self.push_key(2, bytes),
            }
        }
        (!self.buffer.is_empty()).then(|| xxh3_64(&self.buffer))
    }

    /// What [`ChainHasher::extra`] makes of a block whose only key is this salt.
    pub(crate) fn salt(&mut self, salt: &str) -> u64 {
        self.buffer.clear();
        self.push_key(0, salt.as_bytes());
        xxh3_64(&self.buffer)
    }

    /// Kind and length first, so that no two lists of keys read the same.
    fn push_key(&mut self, kind: u8, bytes: &[u8]) {
        self.buffer.push(kind);
        self.buffer.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.buffer.extend_from_slice(bytes);
    }
}

/// For maps keyed by 64-bit hashes. Ours are uniform, but engines' may be anything (mock engines count upwards), so the
/// bits are stirred once: multiplied by 2^64 over the golden ratio and folded. An engine that chose its hashes to
/// collide here would slow down its own router only; sizes stay bounded.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct HashKeyHasher(u64);

impl Hasher for HashKeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64(bytes) ^ self.0.rotate_left(5);
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) type HashKeyed = BuildHasherDefault<HashKeyHasher>;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> ExtraKey {
        ExtraKey::Text(text.into())
    }

    #[test]
    fn roots_differ_by_block_size_and_adapter() {
        let mut chain = ChainHasher::default();
        let roots = [
            chain.root(16, Namespace::Base),
            chain.root(32, Namespace::Base),
            chain.root(16, Namespace::Name("a")),
            chain.root(16, Namespace::Name("b")),
            chain.root(16, Namespace::Id(97)),
        ];
        for (at, root) in roots.iter().enumerate() {
            assert!(!roots[..at].contains(root), "root {at} is one of its own");
        }
    }

    #[test]
    fn a_chain_differs_by_every_token_parent_and_extra_key() {
        let mut chain = ChainHasher::default();
        let root = chain.root(2, Namespace::Base);
        let first = chain.next(root, &[1, 2], None);
        assert_eq!(first, chain.next(root, &[1, 2], None));
        assert_ne!(first, chain.next(root, &[2, 1], None));
        assert_ne!(first, chain.next(first, &[1, 2], None));
        assert_ne!(first, chain.next(root, &[1, 2], Some(0)));
    }

    #[test]
    fn leaves_out_the_adapters_name_once() {
        let mut chain = ChainHasher::default();
        let named = Namespace::Name("ad");
        assert_eq!(chain.extra(&[], Namespace::Base), None);
        assert_eq!(chain.extra(&[text("ad")], named), None);
        assert_eq!(
            chain.extra(&[text("ad"), text("salt")], named),
            Some(chain.salt("salt"))
        );
        assert_eq!(
            chain.extra(&[text("ad"), text("ad")], named),
            Some(chain.salt("ad"))
        );
        assert_eq!(
            chain.extra(&[text("ad")], Namespace::Base),
            Some(chain.salt("ad"))
        );
    }

    #[test]
    fn lists_of_keys_that_spell_the_same_differ() {
        let mut chain = ChainHasher::default();
        let digests = [
            chain.extra(&[text("ab")], Namespace::Base),
            chain.extra(&[text("a"), text("b")], Namespace::Base),
            chain.extra(&[ExtraKey::Bytes(b"ab"[..].into())], Namespace::Base),
        ];
        assert!(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]);
    }
}
