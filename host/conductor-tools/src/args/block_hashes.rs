//! Arguments of `conductor block-hashes`.

use std::num::NonZeroU32;

use clap::{Args, ValueEnum};

/// Arguments of `block-hashes`.
#[derive(Debug, Args)]
pub struct BlockHashesArgs {
    /// Hash algorithm: vLLM's --prefix-caching-hash-algo, rfc1527 (rolling XXH3), or xxh64 (Mooncake's first
    /// conductors).
    #[arg(long, value_enum)]
    pub scheme: HashScheme,

    /// Tokens of a block.
    #[arg(long, default_value = "16")]
    pub block_size: NonZeroU32,

    /// Seed: vLLM's PYTHONHASHSEED, or the initial value of rfc1527 (1337) or xxh64.
    #[arg(long)]
    pub seed: Option<String>,

    /// Name of the LoRA adapter.
    #[arg(long, value_name = "NAME")]
    pub lora: Option<String>,

    /// Path of the adapter in vLLM; without it, the adapter's key is its bare name, as in older versions.
    #[arg(long, value_name = "PATH", requires = "lora")]
    pub lora_path: Option<String>,

    /// Cache salt of the request; with xxh64, the additional salt.
    #[arg(long, value_name = "SALT")]
    pub cache_salt: Option<String>,

    /// Use the bare salt as the salt's key, as older versions of vLLM do.
    #[arg(long)]
    pub untagged: bool,
}

/// Hash algorithms of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum HashScheme {
    /// SHA-256 of pickle, vLLM's default.
    Sha256,
    /// SHA-256 of CBOR.
    Sha256Cbor,
    /// XXH3-128 of pickle.
    Xxhash,
    /// XXH3-128 of CBOR.
    XxhashCbor,
    /// Rolling XXH3-64 of tokens.
    #[value(name = "rfc1527")]
    Rfc1527,
    /// Chained XXH64 of tokens.
    Xxh64,
}
