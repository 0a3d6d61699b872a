//! What the router offers a policy besides the matrix. None of it blocks.

use crate::call::WorkerId;

/// The router's side of a call. In a component these are the imports of `wit/policy.wit`, and only those that a
/// policy uses are imported; natively it is a [`crate::testing::Scenario`].
pub trait Host {
    /// A candidate's name, role and labels; none for an id that is not a candidate of this call.
    fn describe(&self, id: WorkerId) -> Option<About>;

    /// For each candidate, in row order: tokens of the longest prefix of this prompt held on `tier` or a faster
    /// one. The `prefix.*` columns say the same without a call.
    fn matched(&self, tier: Tier) -> Vec<u32>;

    /// How many candidates hold at least the first `tokens` tokens of this prompt, on any tier.
    fn holders(&self, tokens: u32) -> u32;

    /// The first value of a request header; none for those that carry secrets.
    fn header(&self, name: &str) -> Option<String>;

    /// `model` of the request body; empty where there is none.
    fn model(&self) -> String;

    /// Path of the request, as `/v1/chat/completions`.
    fn path(&self) -> String;

    /// Writes a line to the router's log; cut at 1 KiB, at most 10 a second.
    fn log(&self, level: Level, message: &str);

    /// Microseconds on a monotonic clock, frozen during a call.
    fn now_us(&self) -> u64;

    /// Uniform over all 64-bit values; the same sequence for the same request and attempt.
    fn random(&self) -> u64;

    /// A value of the policy's shared state; a counter is read as its 8 bytes, little endian.
    fn state(&self, key: &str) -> Option<Vec<u8>>;

    /// Replaces a value of the shared state; the last writer wins.
    ///
    /// # Errors
    /// [`Refusal`] where a limit is passed.
    fn set_state(&self, key: &str, value: &[u8]) -> Result<(), Refusal>;

    /// Adds to a counter, atomically over all instances, and returns its new value; wraps at 64 bits.
    ///
    /// # Errors
    /// [`Refusal`] where a limit is passed or the key holds something else.
    fn add_state(&self, key: &str, by: i64) -> Result<i64, Refusal>;

    /// Removes a key.
    fn delete_state(&self, key: &str);

    /// Row of the worker that this request's session was last remembered at. None where none is remembered, its time is over, the
    /// worker is no candidate of this call, or the client named no session.
    fn recall_session(&self) -> Option<usize>;

    /// Remembers the worker of this row for this request's session, for `ttl_ms` milliseconds from now, at most a day. Over the
    /// policy's limit (65,536 unless configured) the session that was not used for longest is forgotten.
    fn remember_session(&self, row: usize, ttl_ms: u32);

    /// Forgets this request's session.
    fn forget_session(&self);

    /// Part of the verdict, if that is to hold the request: it waits for the candidate of this row, where it is so much work, in a
    /// unit that all who hold requests in a pool agree on. The last call counts, and only for this verdict.
    fn wait_for(&self, row: usize, work: u32);

    /// For each candidate, how many other requests wait for it, and the work of those among them that are no more work there than
    /// the number in its place in `most`; two numbers a candidate, in row order. `pool.queued` says at no cost whether anybody waits
    /// at all.
    fn ahead(&self, most: &[u32]) -> Vec<u32>;
}

/// Facts about a worker that are not numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its name in `conductor.toml`.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Its labels, sorted by key.
    pub labels: Vec<(String, String)>,
}

/// What a worker does for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Whole requests.
    #[default]
    Mixed,
    /// Prefill legs only.
    Prefill,
    /// Decode, and whole requests where the pool allows it.
    Decode,
}

impl Role {
    /// From the column `worker.role`.
    pub(crate) fn of(number: f64) -> Self {
        if number == 1.0 {
            Self::Prefill
        } else if number == 2.0 {
            Self::Decode
        } else {
            Self::Mixed
        }
    }
}

/// Where a block is kept, fastest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The accelerator's memory.
    Device,
    /// The worker's host memory.
    Host,
    /// The worker's disk, or storage shared by workers.
    Disk,
}

/// How urgent a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For the policy's author.
    Debug,
    /// Of interest in normal operation.
    Info,
    /// Something is not as it should be.
    Warn,
    /// Something failed.
    Error,
}

/// Why the shared state refused a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Over 256 bytes.
    KeyTooLong,
    /// Over 16 KiB.
    ValueTooLong,
    /// 4,096 keys are there already.
    Full,
    /// The key holds bytes, or bytes of another length than a counter's 8.
    NotACounter,
}
