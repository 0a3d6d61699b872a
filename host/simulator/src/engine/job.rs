//! Jobs of workers, and the events that they report.

use super::cache::CacheEvent;
use super::gaps::TokenGaps;

/// A request, or a leg of one, at a worker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Job {
    /// The caller's number. A worker has no two jobs of the same.
    pub(crate) request: usize,
    /// Arrival of the request at the router, in microseconds: its deadline counts from there.
    pub(crate) arrived_us: u64,
    /// Tokens of the prompt, at least 1.
    pub(crate) prompt_tokens: u32,
    /// Tokens of the answer; at least 1.
    pub(crate) output_tokens: u32,
    /// Ids of the prompt's blocks, the last of which may be part of one.
    pub(crate) blocks: Box<[u64]>,
    /// Ids of the complete blocks of prompt and answer, if known.
    pub(crate) grown_blocks: Box<[u64]>,
    /// Kind of the job.
    pub(crate) kind: JobKind,
    /// Prefix that is fetched first.
    pub(crate) fetch: Option<Fetch>,
}

impl Job {
    /// Returns the first token of the prompt to be computed: at least the last one is.
    pub(super) fn start(&self, reuse: Reuse) -> u32 {
        reuse.tokens().min(self.prompt_tokens.saturating_sub(1))
    }
}

/// Kind of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// Compute the prompt, write the answer.
    Whole,
    /// Compute the prompt only.
    Prefill,
    /// Write the answer to a prompt that was computed elsewhere.
    Decode {
        /// Time at which the client got the first token from the prefill worker. `None` if all come from this one. The
        /// time from there to the second token is one of the request's gaps.
        first_us: Option<u64>,
    },
}

/// Leading blocks of a prompt that another worker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fetch {
    /// Index of the worker that has them.
    pub(crate) from: usize,
    /// Number of the prompt's leading blocks that are there when it has ended. Blocks that the receiver has are not
    /// sent.
    pub(crate) blocks: usize,
}

/// Prompt tokens that were not computed, by where they came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reuse {
    /// Tokens from the worker's device.
    pub(crate) device: u32,
    /// Tokens from its host memory.
    pub(crate) host: u32,
    /// Tokens from its disk.
    pub(crate) disk: u32,
    /// Tokens from another worker.
    pub(crate) fetched: u32,
}

impl Reuse {
    /// Returns all of them.
    #[must_use]
    pub(crate) fn tokens(&self) -> u32 {
        self.device + self.host + self.disk + self.fetched
    }
}

/// Event at a worker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EngineEvent {
    /// Time in microseconds.
    pub(crate) at_us: u64,
    /// Index of the worker.
    pub(crate) worker: usize,
    /// The event.
    pub(crate) kind: EngineEventKind,
}

/// Kind of an event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EngineEventKind {
    /// A prompt is computed. It is the last event of a [`JobKind::Prefill`].
    PrefillDone {
        /// The request.
        request: usize,
        /// The part that was cached.
        reuse: Reuse,
    },
    /// The first token that this worker writes; of a [`JobKind::Decode`] the client may have had the one before from
    /// elsewhere.
    FirstToken {
        /// The request.
        request: usize,
    },
    /// The answer is written.
    Finished {
        /// The request.
        request: usize,
        /// The times between its tokens.
        gaps: TokenGaps,
    },
    /// The worker's cache changed.
    Cache(CacheEvent),
}

impl EngineEventKind {
    /// Returns the request; `None` for an event of the cache.
    pub(crate) fn request(&self) -> Option<usize> {
        match self {
            Self::PrefillDone { request, .. }
            | Self::FirstToken { request }
            | Self::Finished { request, .. } => Some(*request),
            Self::Cache(_) => None,
        }
    }
}

/// Load of a worker, as its own metrics would report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EngineLoad {
    /// Jobs that have not begun: prompts to be computed, and answers that wait for room or for their prompt.
    pub(crate) waiting: usize,
    /// Prompts being computed.
    pub(crate) computing: usize,
    /// Answers being written.
    pub(crate) decoding: usize,
    /// Tokens that running requests hold, of the worker's `kv_tokens`.
    pub(crate) kv_tokens: u64,
}

/// Remaining work of a worker at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gauge {
    /// Prompts that wait or are being computed.
    pub(crate) prompts: usize,
    /// Tokens of these that are yet to be computed, those aside that are known to be cached.
    pub(crate) queued_tokens: u64,
    /// Time of that work, in microseconds.
    pub(crate) backlog_us: u64,
    /// Answers that wait for room or for their prompt.
    pub(crate) handed_over: usize,
    /// Answers being written.
    pub(crate) decoding: usize,
    /// Tokens that these hold.
    pub(crate) resident_tokens: u64,
    /// Time of a step of all these answers, in microseconds; 0 without any.
    pub(crate) step_us: u64,
}
