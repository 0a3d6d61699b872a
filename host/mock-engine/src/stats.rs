//! What an engine has done so far, for tests, `/metrics` and the demo.

/// Counters since the engine started (a scripted restart sets them back, but for the faults) and its levels now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MockStats {
    /// Requests the scheduler took; one of several prompts or choices counts once for each.
    pub requests: u64,
    /// Of those, finished with an answer.
    pub completed: u64,
    /// Of those, given up because the client left.
    pub cancelled: u64,
    /// Of those, failed because KV cache from another engine did not come.
    pub failed: u64,
    /// Times a sequence lost its blocks to another and had to be computed again.
    pub preemptions: u64,
    /// Sequences being computed now.
    pub running: u64,
    /// Requests that wait now, for room or for KV cache from another engine.
    pub waiting: u64,
    /// Of those, with blocks reserved for KV cache that is still to come.
    pub transfers_waiting: u64,
    /// Blocks of finished prompts that are kept for another engine now (some of `blocks_used`).
    pub pinned_blocks: u64,
    /// Prompt tokens of the requests that started.
    pub prompt_tokens: u64,
    /// Of those, found in the cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Different blocks that the cache can find now.
    pub blocks_held: u64,
    /// Blocks that cannot be evicted now: those of sequences, and the pinned ones.
    pub blocks_used: u64,
    /// Blocks evicted.
    pub evictions: u64,
    /// Batches of events published (each uses one sequence number), lost ones included.
    pub batches: u64,
    /// Requests that met a scripted [`RequestFault`](crate::RequestFault).
    pub faulted: u64,
    /// Legs that came in with a handshake, by the role they ask for; the next three survive a restart, too.
    pub prefill_legs: u64,
    /// The same for the decode side.
    pub decode_legs: u64,
    /// Legs that asked for the other role, each of which killed the engine.
    pub role_violations: u64,
}

impl MockStats {
    /// Whether nothing is left of any request: none runs or waits, and no block is in use.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight() == 0 && self.blocks_used == 0
    }

    /// Requests that have not finished.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.running + self.waiting
    }
}
