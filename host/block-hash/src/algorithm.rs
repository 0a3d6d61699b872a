//! Hash algorithms of vLLM's `--prefix-caching-hash-algo`: the serialization of a block and its hash function.

use sha2::{Digest as _, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use crate::digest::Digest;

/// A hash algorithm, by vLLM's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// SHA-256 of CPython's pickle, protocol 5. vLLM's default.
    Sha256,
    /// SHA-256 of canonical CBOR.
    Sha256Cbor,
    /// XXH3-128 of the pickle.
    Xxhash,
    /// XXH3-128 of the CBOR.
    XxhashCbor,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 4] = [Self::Sha256, Self::Sha256Cbor, Self::Xxhash, Self::XxhashCbor];

    /// Returns vLLM's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha256Cbor => "sha256_cbor",
            Self::Xxhash => "xxhash",
            Self::XxhashCbor => "xxhash_cbor",
        }
    }

    /// Returns the algorithm with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }

    /// Returns `true` if blocks are serialized as CBOR instead of pickle.
    pub(crate) fn is_cbor(self) -> bool {
        matches!(self, Self::Sha256Cbor | Self::XxhashCbor)
    }

    /// Returns `true` if the digest is SHA-256 instead of XXH3-128.
    pub(crate) fn is_sha256(self) -> bool {
        matches!(self, Self::Sha256 | Self::Sha256Cbor)
    }

    pub(crate) fn digest(self, serialised: &[u8]) -> Digest {
        if self.is_sha256() {
            Digest::of_32(Sha256::digest(serialised).into())
        } else {
            // Python's `xxhash` writes a digest in canonical form, big endian.
            Digest::of_16(xxh3_128(serialised).to_be_bytes())
        }
    }
}
