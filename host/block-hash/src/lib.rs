//! The hashes by which engines and indexers name KV-cache blocks, bit for bit.
//!
//! Three families, each a chain in which a block's hash stands for the whole prefix up to it:
//!
//! - [`VllmHasher`]: vLLM v1's own, over the serialised block, with a root that depends on `PYTHONHASHSEED`;
//! - [`sequence_hashes`]: the rolling XXH3 of Mooncake's RFC 1527, which needs no engine's settings;
//! - [`LegacyChain`]: the XXH64 chain of the first two generations of Mooncake's conductor.
//!
//! Pure: tokens in, hashes out. Token ids are given as `u32`; where a format has signed 32-bit ids, the same bits are meant.
//! It must not know what a hash is looked up in.

mod algorithm;
mod cbor;
mod digest;
mod extra;
mod legacy;
mod pickle;
mod rolling;
mod serial;
mod vllm;

pub use algorithm::Algorithm;
pub use digest::Digest;
pub use extra::ExtraKey;
pub use legacy::LegacyChain;
pub use rolling::{RFC_1527_SEED, sequence_hashes};
pub use vllm::{UNSET_SEED, VllmHasher};
