//! Prefill/decode disaggregation: one engine computes a prompt's KV cache, another fetches it and answers. This module
//! has the configuration and the scheduler's view. `handshake.rs` has the handshakes, `prefill.rs` and `decode.rs` the
//! two sides, `fabric.rs` the network between them.

mod bootstrap;
mod decode;
mod fabric;
mod handshake;
mod prefill;
mod side;

use std::time::Duration;

use tokio::sync::oneshot;

use crate::cache::BlockId;

pub use fabric::Fabric;
pub(crate) use handshake::Members;
pub(crate) use prefill::Settling;
pub(crate) use side::{Denied, EndpointParts, Legs, Opening, TransferEndpoint};

/// Role of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PdRole {
    /// Computes prompts for others (vLLM's `kv_producer`).
    Prefill,
    /// Answers with the KV cache of others (vLLM's `kv_consumer`).
    Decode,
}

/// Handshake between the two roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PdDialect {
    /// vLLM's `NixlConnector`: the prefill answer has the location of the blocks.
    Nixl,
    /// vLLM's `MooncakeConnector`: both legs name a transfer, and the decode side queries a bootstrap server.
    Mooncake,
    /// A shared store of blocks; requests have no handshake.
    Store,
    /// SGLang: both legs name a bootstrap server and a room.
    Sglang,
}

impl PdDialect {
    /// Returns `true` if its prefill side runs a bootstrap server.
    #[must_use]
    pub fn has_bootstrap(self) -> bool {
        matches!(self, Self::Mooncake | Self::Sglang)
    }
}

/// One side of a disaggregated pair. All times are engine time: `time_scale` divides them.
#[derive(Debug, Clone, PartialEq)]
pub struct PdConfig {
    /// Half.
    pub role: PdRole,
    /// Handshake.
    pub dialect: PdDialect,
    /// The network it shares with its counterparts.
    pub fabric: Fabric,
    /// Time that either side of mooncake and sglang waits for the other (`VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT`).
    pub abort_timeout: Duration,
    /// Time that a nixl prefill keeps blocks that are not fetched (`kv_lease_duration`).
    pub lease: Duration,
    /// Time that a nixl decode tries to reach a missing engine.
    pub unreachable_after: Duration,
    /// Time in which a mooncake or sglang decode detects that the bootstrap server is down or does not have the
    /// engine.
    pub refused_after: Duration,
    /// Milliseconds to move the KV cache of 1000 tokens.
    pub transfer_ms_per_1k_tokens: f64,
    /// Port of the bootstrap server on 127.0.0.1 (prefill side of mooncake and sglang); 0 for any free port.
    pub bootstrap_port: u16,
}

impl PdConfig {
    /// Creates a configuration with the observed times of real engines, and 10 ms per 1000 tokens (an 8B model's 128
    /// kB per token over 100 Gbit/s).
    #[must_use]
    pub fn new(role: PdRole, dialect: PdDialect, fabric: &Fabric) -> Self {
        Self {
            role,
            dialect,
            fabric: fabric.clone(),
            abort_timeout: Duration::from_secs(480),
            lease: Duration::from_secs(30),
            unreachable_after: Duration::from_secs(7),
            refused_after: Duration::from_millis(700),
            transfer_ms_per_1k_tokens: 10.0,
            bootstrap_port: 0,
        }
    }
}

/// A request's transfer, for the scheduler.
#[derive(Debug)]
pub(crate) enum Transfer {
    /// The blocks will be fetched.
    Keep(Keep),
    /// The KV cache will arrive.
    Receive(Receive),
}

/// Keeps the blocks of a prompt after its answer, until they are released.
#[derive(Debug)]
pub(crate) struct Keep {
    /// Id for the release.
    pub(crate) id: u64,
    /// Keeps them also if the answer ended with "stop".
    pub(crate) after_stop: bool,
    /// Notified when they are kept; dropped if they will not be.
    pub(crate) kept: oneshot::Sender<KeptBlocks>,
}

/// Kept blocks.
#[derive(Debug)]
pub(crate) struct KeptBlocks {
    pub(crate) blocks: Vec<BlockId>,
    /// Cached prompt tokens of the prefill.
    pub(crate) cached_tokens: u32,
}

/// Waits, with reserved blocks, for the KV cache of leading tokens.
#[derive(Debug)]
pub(crate) struct Receive {
    /// Id for the arrival.
    pub(crate) id: u64,
    /// Number of leading prompt tokens.
    pub(crate) tokens: usize,
    /// Continues to wait after its client has disconnected.
    pub(crate) outlives_client: bool,
    /// Receives the result of the reservation. Dropped if the request was not queued, or nothing is missing. `None` if
    /// nothing will be fetched.
    pub(crate) reserved: Option<oneshot::Sender<Reserved>>,
    /// Dropped with the request.
    pub(crate) _alive: oneshot::Sender<()>,
}

/// Result of the reservation of a request that waits for KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// Blocks are reserved, and this many tokens are missing.
    Missing(usize),
    /// Client disconnected before there was room.
    Abandoned,
}

/// KV cache that has arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    /// Cached tokens in the answer; `None` for all received ones.
    pub(crate) cached_tokens: Option<u32>,
}
