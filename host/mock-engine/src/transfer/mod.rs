//! Prefill/decode disaggregation: an engine computes a prompt's KV cache, another fetches it and answers. What is
//! configured, and what the scheduler is told about it; the handshakes are in `handshake.rs`, the two sides in
//! `prefill.rs` and `decode.rs`, the network between them in `fabric.rs`.

mod bootstrap;
mod decode;
mod fabric;
mod handshake;
mod prefill;
mod side;

use std::time::Duration;

use tokio::sync::oneshot;

use crate::cache::BlockId;

pub(crate) use bootstrap::answer as answer_bootstrap;
pub use fabric::Fabric;
pub(crate) use handshake::Members;
pub(crate) use prefill::Settling;
pub(crate) use side::{Denied, Legs, Opening, Side};

/// Which half of the work an engine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PdRole {
    /// Computes prompts for others (vLLM's `kv_producer`).
    Prefill,
    /// Answers with what others computed (vLLM's `kv_consumer`).
    Decode,
}

/// How the two halves find one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PdDialect {
    /// vLLM's `NixlConnector`: the prefill answer says where the blocks are.
    Nixl,
    /// vLLM's `MooncakeConnector`: both legs name a transfer, the decode side asks a bootstrap server.
    Mooncake,
    /// A shared store of blocks; nothing is said in requests.
    Store,
    /// SGLang: both legs name a bootstrap server and a room.
    Sglang,
}

impl PdDialect {
    /// Whether its prefill side runs a bootstrap server.
    #[must_use]
    pub fn has_bootstrap(self) -> bool {
        matches!(self, Self::Mooncake | Self::Sglang)
    }
}

/// One half of a disaggregated pair. All times are engine time: `time_scale` divides them.
#[derive(Debug, Clone, PartialEq)]
pub struct PdConfig {
    /// Its half.
    pub role: PdRole,
    /// Its handshake.
    pub dialect: PdDialect,
    /// The network it shares with its counterparts.
    pub fabric: Fabric,
    /// How long either side of mooncake and sglang waits for the other
    /// (`VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT`).
    pub abort_timeout: Duration,
    /// How long a nixl prefill keeps blocks that nobody fetches (`kv_lease_duration`).
    pub lease: Duration,
    /// How long a nixl decode tries to reach an engine that is not there.
    pub unreachable_after: Duration,
    /// How long a mooncake or sglang decode takes to find that the bootstrap server is down or does not know
    /// the engine.
    pub refused_after: Duration,
    /// What it takes to move the KV cache of 1000 tokens, in milliseconds.
    pub transfer_ms_per_1k_tokens: f64,
    /// Port of the bootstrap server on 127.0.0.1 (prefill side of mooncake and sglang); 0 lets the system choose.
    pub bootstrap_port: u16,
}

impl PdConfig {
    /// With the times of real engines as observed, and 10 ms for 1000 tokens (an 8B model's 128 kB a token over
    /// 100 Gbit/s).
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

/// What another engine has to do with a request, for the scheduler.
#[derive(Debug)]
pub(crate) enum Transfer {
    /// Its blocks are to be fetched.
    Keep(Keep),
    /// Its KV cache is to come.
    Receive(Receive),
}

/// Keeps the blocks of a prompt when its answer is over, until they are released.
#[derive(Debug)]
pub(crate) struct Keep {
    /// Names them for the release.
    pub(crate) id: u64,
    /// Whether also where the answer ended with "stop".
    pub(crate) after_stop: bool,
    /// Told when they are kept; dropped when they will not be.
    pub(crate) kept: oneshot::Sender<Kept>,
}

/// Blocks that are kept.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) blocks: Vec<BlockId>,
    /// Prompt tokens that the prefill found cached.
    pub(crate) cached_tokens: u32,
}

/// Waits, with its blocks reserved, for the KV cache of leading tokens.
#[derive(Debug)]
pub(crate) struct Receive {
    /// Names it for the arrival.
    pub(crate) id: u64,
    /// Of the prompt, from its start.
    pub(crate) tokens: usize,
    /// Whether it goes on waiting when its client left.
    pub(crate) outlives_client: bool,
    /// Told how things stand once it is decided; dropped where the request was not even queued, or everything was
    /// here already. None where nobody fetches anything.
    pub(crate) reserved: Option<oneshot::Sender<Reserved>>,
    /// Dropped with the request.
    pub(crate) _alive: oneshot::Sender<()>,
}

/// What came of a request that waits for KV cache, before any of it was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// There are blocks, and so many tokens are missing in them.
    Missing(usize),
    /// Its client left before there was room for it.
    Abandoned,
}

/// KV cache that has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    /// What the answer calls cached; none for all that came.
    pub(crate) cached_tokens: Option<u32>,
}
