//! vLLM's choices of `--prefix-caching-hash-algo`: what a block is serialised to, and what that is hashed with.

use sha2::{Digest as _, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use crate::digest::Digest;

/// One of vLLM's algorithms, by vLLM's name.
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
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sha256, Self::Sha256Cbor, Self::Xxhash, Self::XxhashCbor];

    /// As vLLM's command line spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha256Cbor => "sha256_cbor",
            Self::Xxhash => "xxhash",
            Self::XxhashCbor => "xxhash_cbor",
        }
    }

    /// The algorithm of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }

    /// Whether blocks are serialised as CBOR; else as pickle.
    pub(crate) fn is_cbor(self) -> bool {
        matches!(self, Self::Sha256Cbor | Self::XxhashCbor)
    }

    /// Whether the digest is SHA-256's; else XXH3-128's.
    pub(crate) fn is_sha256(self) -> bool {
        matches!(self, Self::Sha256 | Self::Sha256Cbor)
    }

    pub(crate) fn digest(self, serialised: &[u8]) -> Digest {
        if self.is_sha256() {
            Digest::of_32(Sha256::digest(serialised).into())
        } else {
            // As Python's `xxhash` writes a digest: the canonical form, big endian.
            Digest::of_16(xxh3_128(serialised).to_be_bytes())
        }
    }
}
