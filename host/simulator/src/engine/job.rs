//! What a worker is given to do, and what it tells.

use super::cache::CacheEvent;
use super::gaps::TokenGaps;

/// A request, or a leg of one, at a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The caller's number. A worker has no two jobs of the same.
    pub request: usize,
    /// When the request came to the router, in microseconds: what its deadline counts from.
    pub arrived_us: u64,
    /// At least 1.
    pub prompt_tokens: u32,
    /// Tokens of the answer; at least 1.
    pub output_tokens: u32,
    /// Ids of the prompt's blocks, the last of which may be part of one.
    pub blocks: Box<[u64]>,
    /// What is to be done.
    pub kind: JobKind,
    /// What is brought here first.
    pub fetch: Option<Fetch>,
}

impl Job {
    /// The first token of the prompt to be computed: at least the last one is.
    pub(super) fn start(&self, reuse: Reuse) -> u32 {
        reuse.tokens().min(self.prompt_tokens.saturating_sub(1))
    }
}

/// What is to be done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Compute the prompt, write the answer.
    Whole,
    /// Compute the prompt only.
    Prefill,
    /// Write the answer to a prompt that was computed elsewhere.
    Decode {
        /// When the client got the first token from the prefill worker; none where all come from this one. What passes from there to
        /// the second token is one of the request's gaps.
        first_us: Option<u64>,
    },
}

/// Leading blocks of a prompt that another worker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    /// Index of the worker that has them.
    pub from: usize,
    /// How many of the prompt's leading blocks are there when it has ended. Those that the receiver has are not sent.
    pub blocks: usize,
}

/// Prompt tokens that were not computed, by where they came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reuse {
    /// From the worker's device.
    pub device: u32,
    /// From its host memory.
    pub host: u32,
    /// From its disk.
    pub disk: u32,
    /// From another worker.
    pub fetched: u32,
}

impl Reuse {
    /// All of them.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.device + self.host + self.disk + self.fetched
    }
}

/// Something happened at a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineEvent {
    /// When, in microseconds.
    pub at_us: u64,
    /// Index of the worker.
    pub worker: usize,
    /// What.
    pub kind: EngineEventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineEventKind {
    /// A prompt is computed. Of a [`JobKind::Prefill`] it is the last that is told.
    PrefillDone {
        /// Whose.
        request: usize,
        /// What did not have to be computed.
        reuse: Reuse,
    },
    /// The first token that this worker writes; of a [`JobKind::Decode`] the client may have had the one before from elsewhere.
    FirstToken {
        /// Whose.
        request: usize,
    },
    /// The answer is written.
    Finished {
        /// Whose.
        request: usize,
        /// The times between its tokens.
        gaps: TokenGaps,
    },
    /// The worker's cache changed.
    Cache(CacheEvent),
}

/// How busy a worker is, as its own metrics would tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineLoad {
    /// Jobs that have not begun: prompts to be computed, and answers that wait for room or for their prompt.
    pub waiting: usize,
    /// Prompts being computed.
    pub computing: usize,
    /// Answers being written.
    pub decoding: usize,
    /// Tokens that running requests hold, of the worker's `kv_tokens`.
    pub kv_tokens: u64,
}
