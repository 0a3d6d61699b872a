//! vLLM v1's hash chain: `digest_i = H(serialise(digest_{i-1}, tokens, extra keys))` with whole digests as parents,
//! and `NONE_HASH = H(serialise(seed))` as the first block's parent. As of vLLM 0.32
//! (`vllm/v1/core/kv_cache_utils.py`).

use crate::algorithm::Algorithm;
use crate::cbor::CborWriter;
use crate::digest::Digest;
use crate::extra_key::ExtraKey;
use crate::pickle::PickleWriter;
use crate::serial::{write_block, write_seed};

/// Seed of the SHA-256 algorithms without `PYTHONHASHSEED`, as of vLLM 0.32. The XXH3 algorithms then have a random
/// root in every process, unknown to other programs.
pub const UNSET_SEED: &str = "vllm-none-hash";

/// Block hasher of one vLLM deployment. Reuses its buffer.
#[derive(Debug, Clone)]
pub struct VllmHasher {
    algorithm: Algorithm,
    root: Digest,
    buffer: Vec<u8>,
}

impl VllmHasher {
    /// Creates the hasher of a deployment with this `PYTHONHASHSEED`, hashed as written ("0" and "00" differ).
    #[must_use]
    pub fn new(algorithm: Algorithm, seed: &str) -> Self {
        let mut buffer = Vec::with_capacity(256);
        if algorithm.is_cbor() {
            write_seed(CborWriter(&mut buffer), seed);
        } else {
            write_seed(PickleWriter::new(&mut buffer), seed);
        }
        Self {
            algorithm,
            root: algorithm.digest(&buffer),
            buffer,
        }
    }

    /// Creates the hasher if `PYTHONHASHSEED` may be unset; `None` if the root is random then.
    #[must_use]
    pub fn seeded(algorithm: Algorithm, seed: Option<&str>) -> Option<Self> {
        match seed {
            Some(seed) => Some(Self::new(algorithm, seed)),
            None => algorithm.is_sha256().then(|| Self::new(algorithm, UNSET_SEED)),
        }
    }

    /// Returns the parent of first blocks: vLLM's `NONE_HASH`.
    #[must_use]
    pub fn root(&self) -> Digest {
        self.root
    }

    /// Returns the digest of a block after `parent`.
    #[must_use]
    pub fn block(&mut self, parent: &Digest, tokens: &[u32], extra_keys: &[ExtraKey<'_>]) -> Digest {
        self.buffer.clear();
        if self.algorithm.is_cbor() {
            write_block(CborWriter(&mut self.buffer), parent, tokens, extra_keys);
        } else {
            write_block(PickleWriter::new(&mut self.buffer), parent, tokens, extra_keys);
        }
        self.algorithm.digest(&self.buffer)
    }
}

#[cfg(test)]
mod tests;
