//! Sequence hash: the index's identity of a prefix, a rolling hash over the tokens of its blocks.
//!
//! `local_i = XXH3-64(tokens of block i as u32 LE)`, `seq_0 = local_0`, `seq_i = XXH3-64(seq_{i-1} LE || local_i LE)`,
//! all with [`SEQUENCE_HASH_SEED`]. This is the recommendation of Mooncake RFC 1527 with Dynamo's seed, so engines and
//! routers that follow it have the same hashes. The RFC leaves adapters and extra keys open. An adapter's chain starts
//! from a digest of the adapter. The digest of a block's extra keys is mixed into its local hash. Equal hashes mean
//! equal prefixes up to a 64-bit collision; `host/adr/0004-prefix-identity.md` describes the cost of one.

use routing::{ExtraKey, Lora};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The seed of every hash of the chain (Dynamo's).
pub const SEQUENCE_HASH_SEED: u64 = 1337;

/// Chain namespace: an adapter or the base model. Chains of different namespaces never match.
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

    /// Returns the start value of a chain.
    pub(crate) fn root(self) -> Option<u64> {
        let (kind, bytes): (u8, &[u8]) = match &self {
            Self::Base => return None,
            Self::Name(name) => (1, name.as_bytes()),
            Self::Id(id) => (2, &id.to_le_bytes()),
        };
        Some(xxh3_64(&[&[kind], bytes].concat()))
    }
}

/// Returns the hash of a single block. `extra`: see [`extra_digest`].
pub(crate) fn local_hash(tokens: &[u32], extra: Option<u64>) -> u64 {
    let local = if cfg!(target_endian = "little") {
        xxh3_64_with_seed(bytemuck::cast_slice(tokens), SEQUENCE_HASH_SEED)
    } else {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        xxh3_64_with_seed(&bytes, SEQUENCE_HASH_SEED)
    };
    extra.map_or(local, |extra| rolled(local, extra))
}

/// Returns the hash of the prefix that consists of `parent` and one more block.
pub(crate) fn sequence_hash(parent: Option<u64>, local: u64) -> u64 {
    parent.map_or(local, |parent| rolled(parent, local))
}

fn rolled(first: u64, second: u64) -> u64 {
    let mut both = [0; 16];
    both[..8].copy_from_slice(&first.to_le_bytes());
    both[8..].copy_from_slice(&second.to_le_bytes());
    xxh3_64_with_seed(&both, SEQUENCE_HASH_SEED)
}

/// Returns the digest of a block's inputs other than tokens; `None` if it has none. vLLM puts the adapter's name first
/// among the keys of every block. That one occurrence is skipped, because the namespace contains it. Only one is
/// skipped: a salt may equal the adapter's name.
pub(crate) fn extra_digest(keys: &[ExtraKey], namespace: Namespace<'_>) -> Option<u64> {
    if keys.is_empty() {
        return None;
    }
    let adapter = match namespace {
        Namespace::Name(name) => keys
            .iter()
            .position(|key| matches!(key, ExtraKey::Text(text) if **text == *name)),
        Namespace::Base | Namespace::Id(_) => None,
    };
    let mut bytes = Vec::new();
    for (_, key) in keys
        .iter()
        .enumerate()
        .filter(|&(place, _)| Some(place) != adapter)
    {
        match key {
            ExtraKey::Text(text) => push_key(&mut bytes, 0, text.as_bytes()),
            ExtraKey::Int(number) => push_key(&mut bytes, 1, &number.to_le_bytes()),
            ExtraKey::Bytes(key) => push_key(&mut bytes, 2, key),
        }
    }
    (!bytes.is_empty()).then(|| xxh3_64(&bytes))
}

/// Returns the [`extra_digest`] of a block whose only key is this salt.
pub(crate) fn salt_digest(salt: &str) -> u64 {
    let mut bytes = Vec::new();
    push_key(&mut bytes, 0, salt.as_bytes());
    xxh3_64(&bytes)
}

/// Appends a key with its kind and length, so that different lists never have equal bytes.
fn push_key(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    out.push(kind);
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> ExtraKey {
        ExtraKey::Text(text.into())
    }

    /// Expected values are from the xxHash reference implementation, by the RFC's formula.
    #[test]
    fn hashes_as_rfc_1527_says() {
        let bytes: Vec<u8> = (1..=4_u32).flat_map(u32::to_le_bytes).collect();
        let first = xxh3_64_with_seed(&bytes, 1337);
        assert_eq!(sequence_hash(None, local_hash(&[1, 2, 3, 4], None)), first);
        let second = local_hash(&[5, 6, 7, 8], None);
        let both: Vec<u8> = [first, second]
            .iter()
            .flat_map(|hash| hash.to_le_bytes())
            .collect();
        assert_eq!(sequence_hash(Some(first), second), xxh3_64_with_seed(&both, 1337));
    }

    #[test]
    fn chains_start_apart_for_each_adapter() {
        let roots = [
            Namespace::Base.root(),
            Namespace::Name("a").root(),
            Namespace::Name("b").root(),
            Namespace::Id(97).root(),
        ];
        for (at, root) in roots.iter().enumerate() {
            assert!(!roots[..at].contains(root), "root {at} is one of its own");
        }
    }

    #[test]
    fn a_chain_differs_by_every_token_parent_and_extra_key() {
        let first = sequence_hash(None, local_hash(&[1, 2], None));
        assert_ne!(first, sequence_hash(None, local_hash(&[2, 1], None)));
        assert_ne!(first, sequence_hash(Some(first), local_hash(&[1, 2], None)));
        assert_ne!(first, sequence_hash(None, local_hash(&[1, 2], Some(0))));
    }

    #[test]
    fn leaves_out_the_adapters_name_once() {
        let named = Namespace::Name("ad");
        assert_eq!(extra_digest(&[], Namespace::Base), None);
        assert_eq!(extra_digest(&[text("ad")], named), None);
        assert_eq!(
            extra_digest(&[text("ad"), text("salt")], named),
            Some(salt_digest("salt"))
        );
        assert_eq!(
            extra_digest(&[text("ad"), text("ad")], named),
            Some(salt_digest("ad"))
        );
        assert_eq!(
            extra_digest(&[text("ad")], Namespace::Base),
            Some(salt_digest("ad"))
        );
    }

    #[test]
    fn lists_of_keys_that_spell_the_same_differ() {
        let digests = [
            extra_digest(&[text("ab")], Namespace::Base),
            extra_digest(&[text("a"), text("b")], Namespace::Base),
            extra_digest(&[ExtraKey::Bytes(b"ab"[..].into())], Namespace::Base),
        ];
        assert!(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]);
    }
}
