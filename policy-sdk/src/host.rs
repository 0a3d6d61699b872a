//! Functions that the router offers a policy besides the matrix. None of them blocks.

use crate::call::WorkerId;

/// Router's side of a call.
///
/// In a component these are the imports of `wit/policy.wit`; functions that a policy does not use are not
/// imported. In native tests it is a [`crate::testing::Scenario`].
pub trait Host {
    /// Returns a candidate's name, role and labels; none for an id that is not a candidate of this call.
    fn describe(&self, id: WorkerId) -> Option<WorkerInfo>;

    /// Returns, for each candidate in row order, the tokens of the longest prefix of this prompt on `tier` or
    /// a faster one. The `prefix.*` columns carry the same numbers without a call.
    ///
    /// Empty while the prompt's tokens are unknown: use `get`, not an index.
    fn matched(&self, tier: Tier) -> Vec<u32>;

    /// Returns the number of candidates that hold at least the first `tokens` tokens of this prompt, on any
    /// tier.
    fn holders(&self, tokens: u32) -> u32;

    /// Returns the first value of a request header; none for a header that `policy-headers` of `[server]` does
    /// not list, and for headers that carry secrets.
    fn header(&self, name: &str) -> Option<String>;

    /// Returns `model` of the request body; empty if there is none.
    fn model(&self) -> String;

    /// Returns the path of the request, such as `/v1/chat/completions`.
    fn path(&self) -> String;

    /// Writes a line to the router's log. Lines are cut at 1 KiB and limited to 10 a second.
    fn log(&self, level: Level, message: &str);

    /// Returns microseconds on a monotonic clock, which is frozen during a call.
    fn now_us(&self) -> u64;

    /// Returns a uniform 64-bit number. The sequence is the same for the same request and attempt.
    fn random(&self) -> u64;

    /// Returns a value of the policy's shared state; a counter reads as its 8 bytes, little endian.
    fn state(&self, key: &str) -> Option<Vec<u8>>;

    /// Replaces a value of the shared state; the last writer wins.
    ///
    /// # Errors
    ///
    /// [`StateError`] if a limit is exceeded.
    fn set_state(&self, key: &str, value: &[u8]) -> Result<(), StateError>;

    /// Adds to a counter, atomically over all instances, and returns its new value; wraps at 64 bits.
    ///
    /// # Errors
    ///
    /// [`StateError`] if a limit is exceeded or the key holds no counter.
    fn add_state(&self, key: &str, by: i64) -> Result<i64, StateError>;

    /// Removes a key.
    fn delete_state(&self, key: &str);

    /// Returns the row of the worker last remembered for this request's session.
    ///
    /// Returns none if no worker is remembered, the entry has expired, the worker is no candidate of this
    /// call, or the request has no session.
    fn recall_session(&self) -> Option<usize>;

    /// Remembers the worker of this row for this request's session, for `ttl_ms` milliseconds, at most one
    /// day.
    ///
    /// Above the policy's limit (65,536 by default) the least recently used session is evicted.
    fn remember_session(&self, row: usize, ttl_ms: u32);

    /// Forgets this request's session.
    fn forget_session(&self);

    /// Sets the worker that a held request waits for, and the request's work there.
    ///
    /// All policies of a pool must use the same unit of work. Only the last call counts, and only if this
    /// call's verdict holds the request.
    fn wait_for(&self, row: usize, work: u32);

    /// Returns two numbers for each candidate, in row order: the other requests of no lower class that wait for
    /// it, and the work of those that go before this one.
    ///
    /// Of its own class and tenant those have at most the candidate's value of `most`; `wit/README.md` has the
    /// whole rule. `pool.queued` reports at no cost how many requests wait at all.
    fn ahead(&self, most: &[u32]) -> Vec<u32>;
}

/// Non-numeric facts about a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerInfo {
    /// Name of the worker in `conductor.toml`.
    pub name: String,
    /// Role of the worker.
    pub role: Role,
    /// Labels of the worker, sorted by key.
    pub labels: Vec<(String, String)>,
}

/// Part of a request that a worker serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// The worker serves whole requests.
    #[default]
    Mixed,
    /// The worker serves prefill legs only.
    Prefill,
    /// The worker serves decode legs, and whole requests if the pool allows it.
    Decode,
}

impl Role {
    /// Value of a prefill worker in the column `worker.role`.
    pub(crate) const PREFILL: f64 = 1.0;
    /// Value of a decode worker.
    pub(crate) const DECODE: f64 = 2.0;

    /// Converts a value of the column `worker.role`.
    pub(crate) fn of(number: f64) -> Self {
        if number == Self::PREFILL {
            Self::Prefill
        } else if number == Self::DECODE {
            Self::Decode
        } else {
            Self::Mixed
        }
    }
}

/// Storage tier of a KV-cache block, fastest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Memory of the accelerator.
    Device,
    /// Host memory of the worker.
    Host,
    /// Disk of the worker, or storage shared by workers.
    Disk,
}

/// Severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Details for the policy's author.
    Debug,
    /// Events of normal operation.
    Info,
    /// Unexpected condition.
    Warn,
    /// Failure.
    Error,
}

/// Reason for a rejected write to the shared state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateError {
    /// The key is longer than 256 bytes.
    KeyTooLong,
    /// The value is longer than 16 KiB.
    ValueTooLong,
    /// The state holds 4,096 keys already.
    Full,
    /// The key holds bytes that are no counter of 8 bytes.
    NotACounter,
}
