//! Engine statistics for tests, `/metrics` and the demo.

/// Counters since the engine started (a scripted restart resets them, except the faults), and current levels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MockStats {
    /// Requests taken by the scheduler; one with several prompts or choices counts for each.
    pub requests: u64,
    /// Completed requests among those.
    pub completed: u64,
    /// Requests among those that were cancelled because the client disconnected.
    pub cancelled: u64,
    /// Requests among those that failed because KV cache from another engine did not arrive.
    pub failed: u64,
    /// Times that a sequence was preempted and had to be computed again.
    pub preemptions: u64,
    /// Running sequences.
    pub running: u64,
    /// Queued requests, for room or for KV cache from another engine.
    pub waiting: u64,
    /// Requests among those with blocks reserved for KV cache that has not arrived.
    pub transfers_waiting: u64,
    /// Running and queued requests whose client has disconnected.
    pub abandoned: u64,
    /// Blocks of finished prompts kept for another engine (part of `blocks_used`).
    pub pinned_blocks: u64,
    /// Prompt tokens of started requests.
    pub prompt_tokens: u64,
    /// Tokens among those that were found in the cache.
    pub cached_tokens: u64,
    /// Generated tokens.
    pub generated_tokens: u64,
    /// Different blocks in the cache.
    pub blocks_held: u64,
    /// Blocks that cannot be evicted: those of sequences, and pinned ones.
    pub blocks_used: u64,
    /// Evicted blocks.
    pub evictions: u64,
    /// Published batches of events (each uses one sequence number), including lost ones.
    pub batches: u64,
    /// Requests that met a scripted [`RequestFault`](crate::RequestFault).
    pub faulted: u64,
    /// Streams held by [`Faults::hold_streams_after`](crate::Faults::hold_streams_after).
    pub held_streams: u64,
    /// Legs with a handshake for the prefill role; this and the next three survive a restart.
    pub prefill_legs: u64,
    /// Legs with a handshake for the decode role.
    pub decode_legs: u64,
    /// Legs with the wrong role, each of which killed the engine.
    pub role_violations: u64,
}

impl MockStats {
    /// Returns `true` if no request runs or waits, and no block is in use.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight() == 0 && self.blocks_used == 0
    }

    /// Returns the number of unfinished requests.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.running + self.waiting
    }
}
