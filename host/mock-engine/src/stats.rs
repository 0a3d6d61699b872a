//! What an engine has done so far, for tests, `/metrics` and the demo.

/// Counters since the engine started (a scripted restart sets them back, but for the faults) and its levels now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MockStats {
    /// Requests the scheduler took.
    pub requests: u64,
    /// Of those, finished with an answer.
    pub completed: u64,
    /// Of those, given up because the client left.
    pub cancelled: u64,
    /// Times a sequence lost its blocks to another and had to be computed again.
    pub preemptions: u64,
    /// Sequences being computed now.
    pub running: u64,
    /// Requests that wait now.
    pub waiting: u64,
    /// Prompt tokens of the requests that started.
    pub prompt_tokens: u64,
    /// Of those, found in the cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Different blocks that the cache can find now.
    pub blocks_held: u64,
    /// Blocks that running sequences use now.
    pub blocks_used: u64,
    /// Blocks evicted.
    pub evictions: u64,
    /// Batches of events published (each uses one sequence number), lost ones included.
    pub batches: u64,
    /// Requests that met a scripted [`RequestFault`](crate::RequestFault).
    pub faulted: u64,
}

impl MockStats {
    /// Requests that have not finished.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.running + self.waiting
    }
}
