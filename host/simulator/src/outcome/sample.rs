//! Samples of the cluster's state during a run.

use serde::Serialize;

/// The cluster and its router at one moment. Sums count from the beginning of the run; workers that are away count
/// nowhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Sample {
    /// Time in microseconds of the run.
    pub at_us: u64,
    /// Requests that the router holds.
    pub held: usize,
    /// Prompts that wait at workers or are being computed.
    pub in_prefill: usize,
    /// Tokens of these that are yet to be computed, as far as is known before they are looked up.
    pub queued_tokens: u64,
    /// Queued tokens of the worker that has most.
    pub most_queued_tokens: u64,
    /// Prompts computed elsewhere that are on their way to a decode worker, or wait there for room.
    pub handed_over: usize,
    /// Answers being written.
    pub decoding: usize,
    /// Tokens of requests whose answers are being written.
    pub resident_tokens: u64,
    /// Blocks of the prompts computed so far.
    pub blocks: u64,
    /// Blocks among them that were cached or fetched.
    pub cached_blocks: u64,
    /// Requests refused so far, by the router or by a decode worker.
    pub rejected: usize,
    /// Mean, over the workers that compute prompts, of the predicted time for the prompts they have, as a share of the
    /// limit to the first token. `None` if there is no such worker.
    pub prefill_load: Option<f64>,
    /// Mean, over the workers that write answers, of the predicted time between tokens for the answers they have and
    /// are given, as a share of its limit. `None` if there is no such worker.
    pub decode_load: Option<f64>,
}
