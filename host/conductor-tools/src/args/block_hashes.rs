//! Arguments of `conductor block-hashes`.

use std::num::NonZeroU32;

use clap::{Args, ValueEnum};

/// Arguments of `block-hashes`.
#[derive(Debug, Args)]
pub struct BlockHashesArgs {
    /// vLLM's --prefix-caching-hash-algo; or rfc1527 (rolling XXH3); or xxh64 (Mooncake's first conductors).
    #[arg(long, value_enum)]
    pub scheme: HashScheme,

    /// Tokens a block.
    #[arg(long, default_value = "16")]
    pub block_size: NonZeroU32,

    /// vLLM's PYTHONHASHSEED; the number that rfc1527 (1337) or the first xxh64 conductor starts with.
    #[arg(long)]
    pub seed: Option<String>,

    /// The adapter's name.
    #[arg(long, value_name = "NAME")]
    pub lora: Option<String>,

    /// Where vLLM loaded the adapter from; without it the adapter's key is its bare name, as in older versions.
    #[arg(long, value_name = "PATH", requires = "lora")]
    pub lora_path: Option<String>,

    /// The request's cache salt; with xxh64 the additional salt.
    #[arg(long, value_name = "SALT")]
    pub cache_salt: Option<String>,

    /// The salt's key is the bare salt, as in older versions of vLLM.
    #[arg(long)]
    pub untagged: bool,
}

/// Ways to name blocks.
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
