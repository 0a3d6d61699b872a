//! vLLM v1's chain: `digest_i = H(serialise(digest_{i-1}, tokens, extra keys))` with whole digests as parents, and for the
//! first block's parent `NONE_HASH = H(serialise(seed))`. As of vLLM 0.32 (`vllm/v1/core/kv_cache_utils.py`).

use crate::algorithm::Algorithm;
use crate::cbor::Cbor;
use crate::digest::Digest;
use crate::extra::ExtraKey;
use crate::pickle::Pickle;
use crate::serial::{write_block, write_seed};

/// The seed of the SHA-256 algorithms where `PYTHONHASHSEED` is not set, as of vLLM 0.32. The XXH3 ones then have a random
/// root in every process, which nobody outside can know.
pub const UNSET_SEED: &str = "vllm-none-hash";

/// Hashes blocks as one vLLM deployment does. Keeps its buffer between blocks.
#[derive(Debug, Clone)]
pub struct VllmHasher {
    algorithm: Algorithm,
    root: Digest,
    buffer: Vec<u8>,
}

impl VllmHasher {
    /// For a deployment whose `PYTHONHASHSEED` is this text; it is hashed as written ("0" and "00" differ).
    #[must_use]
    pub fn new(algorithm: Algorithm, seed: &str) -> Self {
        let mut buffer = Vec::with_capacity(256);
        if algorithm.is_cbor() {
            write_seed(Cbor(&mut buffer), seed);
        } else {
            write_seed(Pickle::new(&mut buffer), seed);
        }
        Self {
            algorithm,
            root: algorithm.digest(&buffer),
            buffer,
        }
    }

    /// The same where `PYTHONHASHSEED` may be unset; none where the root is random then.
    #[must_use]
    pub fn seeded(algorithm: Algorithm, seed: Option<&str>) -> Option<Self> {
        match seed {
            Some(seed) => Some(Self::new(algorithm, seed)),
            None => algorithm.is_sha256().then(|| Self::new(algorithm, UNSET_SEED)),
        }
    }

    /// The parent of first blocks: vLLM's `NONE_HASH`.
    #[must_use]
    pub fn root(&self) -> Digest {
        self.root
    }

    /// The digest of a block after `parent`.
    #[must_use]
    pub fn block(&mut self, parent: &Digest, tokens: &[u32], extra_keys: &[ExtraKey<'_>]) -> Digest {
        self.buffer.clear();
        if self.algorithm.is_cbor() {
            write_block(Cbor(&mut self.buffer), parent, tokens, extra_keys);
        } else {
            write_block(Pickle::new(&mut self.buffer), parent, tokens, extra_keys);
        }
        self.algorithm.digest(&self.buffer)
    }
}

#[cfg(test)]
mod tests;
