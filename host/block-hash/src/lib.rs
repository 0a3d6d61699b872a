//! Block hashes of engines and indexers, bit for bit.
//!
//! There are three families. Each is a chain, in which a block's hash identifies the whole prefix up to it:
//!
//! - [`VllmHasher`]: vLLM v1's own, over the serialized block, with a root that depends on `PYTHONHASHSEED`;
//! - [`sequence_hashes`]: the rolling XXH3 of Mooncake's RFC 1527, which is independent of an engine's settings;
//! - [`LegacyChain`]: the XXH64 chain of the first two generations of Mooncake's conductor.
//!
//! Pure: tokens in, hashes out. Token ids are `u32`; in formats with signed 32-bit ids they have the same bits.

mod algorithm;
mod cbor;
mod digest;
mod extra;
mod extra_key;
mod legacy;
mod pickle;
mod rolling;
mod serial;
mod vllm;

pub use algorithm::Algorithm;
pub use digest::Digest;
pub use extra_key::ExtraKey;
pub use legacy::LegacyChain;
pub use rolling::{RFC_1527_SEED, sequence_hashes};
pub use vllm::{UNSET_SEED, VllmHasher};
