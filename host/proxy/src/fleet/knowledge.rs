//! Failure streaks and tokenizer latencies of a pool.

use crate::fleet::failure_streak::FailureStreak;
use crate::fleet::latency::TokenizerLatency;

/// Failure streaks and latencies of a pool, over all snapshots.
#[derive(Debug, Default)]
pub(crate) struct PoolKnowledge {
    /// Answers of the tokenizers.
    pub(crate) latency: TokenizerLatency,
    /// Prompts whose tokens were not known in time.
    pub(crate) timeouts: FailureStreak,
    /// Prompts whose tokens could not be made, or not be had from a worker.
    pub(crate) failures: FailureStreak,
    /// Prefill answers without the parameters of a handshake.
    pub(crate) handovers: FailureStreak,
}
