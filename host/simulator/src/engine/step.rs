//! Cost of a worker's step: pieces of prompts, one token of every answer, or both.

use super::job::{Job, Reuse};
use super::prefill::Piece;
use crate::profile::{Profile, whole};
use crate::spec::{ClusterSpec, Transfers, WorkerSpec};

/// Step in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) ends_us: u64,
    /// Time of the next event. Steps may end unreported until then, unless a job comes.
    pub(super) reports_us: u64,
    /// Answers get a token at its end.
    pub(super) decodes: bool,
}

/// Step costs of one worker.
#[derive(Debug)]
pub(super) struct Costs {
    profile: Profile,
    speed: f64,
    /// Factor of a transfer's time over the profile's.
    link: f64,
    holds_receiver: bool,
    block_tokens: u32,
}

/// The parts of a step, in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Parts {
    /// Time during which nothing else goes on.
    hold: f64,
    /// Goes on beside the computation, layer by layer (`mooncake-paper.md`, section 7).
    load: f64,
    /// Time of computation on a worker of speed 1.
    compute: f64,
}

impl Costs {
    pub(super) fn new(cluster: &ClusterSpec, worker: &WorkerSpec, block_tokens: u32) -> Self {
        Self {
            profile: cluster.profile.clone(),
            speed: worker.speed,
            link: cluster.profile.link_gbps() / worker.link_gbps,
            holds_receiver: cluster.transfers == Transfers::HoldReceiver,
            block_tokens,
        }
    }

    /// Returns the tokens in so many leading blocks of a prompt.
    pub(super) fn tokens(&self, blocks: usize, prompt_tokens: u32) -> u32 {
        tokens(blocks, self.block_tokens, prompt_tokens)
    }

    /// Returns the time of a prompt besides its computation.
    pub(super) fn begin(&self, reuse: Reuse, parts: &mut Parts) {
        if self.holds_receiver && reuse.fetched > 0 {
            parts.hold += self.profile.transfer_us(reuse.fetched) as f64 * self.link;
        }
        parts.load += self.profile.load_us(reuse.host) as f64;
        parts.load += self.profile.disk_load_us(reuse.disk) as f64;
    }

    pub(super) fn compute(&self, piece: Piece, parts: &mut Parts) {
        parts.compute += self.profile.piece_us(piece.start, piece.end, piece.first);
    }

    /// Returns the fixed time of a step that writes no tokens.
    pub(super) fn compute_fixed(&self, parts: &mut Parts) {
        parts.compute += self.profile.prefill_fixed_us();
    }

    pub(super) fn decode(&self, batch: u32, resident: u64, parts: &mut Parts) {
        parts.compute += self.profile.step_us(batch, resident) as f64;
    }

    /// Returns the time of a step.
    pub(super) fn took_us(&self, parts: Parts) -> u64 {
        whole(parts.hold + parts.load.max(parts.compute / self.speed)).max(1)
    }

    /// Returns the time of a piece, the rest of its step aside.
    pub(super) fn rest_us(&self, piece: Piece) -> u64 {
        let mut parts = Parts::default();
        self.compute(piece, &mut parts);
        whole(parts.compute / self.speed)
    }

    /// Returns the time of a prompt if nothing else is computed.
    pub(super) fn alone_us(&self, job: &Job, reuse: Reuse) -> u64 {
        let mut parts = Parts::default();
        self.begin(reuse, &mut parts);
        let piece = Piece {
            start: job.start(reuse),
            end: job.prompt_tokens,
            first: true,
        };
        self.compute(piece, &mut parts);
        self.compute_fixed(&mut parts);
        self.took_us(parts)
    }
}

/// Returns the tokens in so many leading blocks of a prompt.
pub(super) fn tokens(blocks: usize, block_tokens: u32, prompt_tokens: u32) -> u32 {
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    blocks.saturating_mul(block_tokens).min(prompt_tokens)
}
