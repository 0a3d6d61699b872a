//! Outcome of a run: the result of each request, and their summary.

mod breakdown;
mod latency_targets;
mod loads;
mod quantiles;
mod sample;
mod summary;

pub use self::breakdown::{
    AttainmentPoint, Breakdown, Fairness, GroupTimes, LengthGroup, RefusalShares, TurnGroup,
};
pub use self::latency_targets::LatencyTargets;
pub use self::loads::{PoolLoads, Swing};
pub use self::quantiles::Quantiles;
pub use self::sample::Sample;
pub use self::summary::Summary;
use crate::router::RouterCounts;

/// Outcome of one request. Times are microseconds of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestOutcome {
    /// Arrival.
    pub arrived_us: u64,
    /// First dispatch to a worker.
    pub dispatched_us: Option<u64>,
    /// Time of its first token.
    pub first_token_us: Option<u64>,
    /// Time of its last token.
    pub finished_us: Option<u64>,
    /// Mean of the longest tenth of the times between its tokens, in microseconds (Mooncake, FAST '25); none before it
    /// has two tokens.
    pub tbt_us: Option<f64>,
    /// Tokens of its prompt that its worker had, or fetched, and did not compute.
    pub cached_tokens: u32,
    /// Blocks of its prompt that this was.
    pub cached_blocks: u32,
    /// The worker that computed its prompt.
    pub prefill: Option<usize>,
    /// The worker that wrote its answer.
    pub worker: Option<usize>,
    /// End.
    pub end: End,
}

/// End of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The last token was sent.
    Served,
    /// The router refused it, or a decode worker did.
    Rejected {
        /// Status of the answer.
        status: u16,
        /// Set if the prompt was computed before and lost.
        computed: bool,
        /// Reason of the refusal.
        reason: RefusalReason,
    },
    /// The worker failed when the client had seen a token of the request, or its router died.
    Lost,
    /// The run ended before it did.
    Unfinished,
}

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusalReason {
    /// The policy rejects the request.
    Policy,
    /// The policy holds it, and too many are held.
    QueueFull,
    /// The request was held for too long.
    QueueTimeout,
    /// Every worker was tried, or is gone.
    NoWorker,
    /// The decode worker refuses the computed prompt.
    DecodeWorker,
}

/// Use of a worker in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WorkerUse {
    /// Set if the worker's role is to compute prompts.
    pub computes: bool,
    /// Prompt tokens that it computed.
    pub computed_tokens: u64,
}

/// A run, request by request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Outcomes of the requests, in the trace's order.
    pub courses: Vec<RequestOutcome>,
    /// Use of each worker.
    pub workers: Vec<WorkerUse>,
    /// Counters of the routers.
    pub router: RouterCounts,
    /// The cluster at even distances, see [`crate::RunSpec::sample_every_us`].
    pub samples: Vec<Sample>,
}

impl RequestOutcome {
    /// Returns the outcome of a request that has arrived.
    #[must_use]
    pub fn arrived(at_us: u64) -> Self {
        Self {
            arrived_us: at_us,
            dispatched_us: None,
            first_token_us: None,
            finished_us: None,
            tbt_us: None,
            cached_tokens: 0,
            cached_blocks: 0,
            prefill: None,
            worker: None,
            end: End::Unfinished,
        }
    }

    /// Returns the time from the arrival to the first token, in microseconds.
    #[must_use]
    pub fn ttft_us(&self) -> Option<u64> {
        Some(self.first_token_us? - self.arrived_us)
    }
}
