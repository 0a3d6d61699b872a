//! Expectations that a pool has of its workers' caches, until events confirm them or in their place.

use std::time::Duration;

use kv_index::Sent;
use routing::WorkerId;

/// Most blocks expected at a worker whose events will soon confirm them: those of some hundred long prompts.
const MOST_UNCONFIRMED: u64 = 262_144;

/// Expectations that a pool has of its workers' caches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expectation {
    /// Time for which a worker with live events is expected to hold a prompt it was just sent. Zero: no expectation.
    pub until_confirmed: Duration,
    /// Assumed caches of workers without events. `None`: nothing is known of those.
    pub assumed: Option<AssumedCache>,
}

/// Cache that publishes no events, as the operator describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssumedCache {
    /// Tokens that the cache holds.
    pub tokens: u64,
    /// Tokens of a block, above 0: the unit of matches.
    pub block_size: u32,
    /// Lifetime of an expected block that no request uses again.
    pub lifetime: Duration,
}

impl Expectation {
    /// Returns the time for which blocks are expected at a worker. Zero: no expectation.
    pub(crate) fn lifetime(&self, is_live: bool) -> Duration {
        match self.assumed {
            Some(assumed) if !is_live => assumed.lifetime,
            _ => self.until_confirmed,
        }
    }

    /// Returns the update of the index for a request that goes to a worker.
    pub(crate) fn sent(&self, worker: WorkerId, is_live: bool) -> Option<Sent> {
        let (block_size, capacity) = match self.assumed {
            Some(assumed) if !is_live => (
                assumed.block_size,
                assumed.tokens / u64::from(assumed.block_size.max(1)),
            ),
            // The index gets the block size from events; without any it has nothing to compare with either.
            _ if is_live && !self.until_confirmed.is_zero() => (0, MOST_UNCONFIRMED),
            _ => return None,
        };
        Some(Sent {
            worker,
            block_size,
            capacity,
        })
    }
}
