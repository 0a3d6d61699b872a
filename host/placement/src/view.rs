//! View of a router's state: the traits by which a decision reads workers, request, queue and policies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use routing::{LeastLoaded, LoadReading, Phase, PolicyVersions, RunNumber, Worker};

use crate::matches::PrefixMatches;
use crate::query_source::QuerySource;
use crate::row::{CandidateRow, CostFeature};
use crate::shapes::{AllowedShapes, Eligibility};

/// The workers of the request's pool, by their index in it, and their health.
pub trait FleetView {
    /// Numbers of the workers beside those that [`Worker`] has.
    type Columns<'a>: WorkerColumns
    where
        Self: 'a;

    /// Returns how many workers the pool has.
    fn member_count(&self) -> usize;

    /// Returns a worker.
    fn worker(&self, member: usize) -> &Arc<Worker>;

    /// Returns whether a worker serves the request's model.
    fn serves(&self, member: usize) -> bool;

    /// Returns whether a worker is draining: it gets no new requests.
    fn is_draining(&self, member: usize) -> bool;

    /// Returns a worker's health with regard to the request with that seed.
    fn eligibility(&self, member: usize, seed: u64) -> Eligibility;

    /// Begins the layout of columns of some members. All rows of a layout have the same time.
    fn columns<'a>(&'a self, members: &[usize], matches: Option<&PrefixMatches>) -> Self::Columns<'a>;
}

/// Version of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetVersion(u64);

impl FleetVersion {
    /// Returns a version that no other fleet of the process has.
    #[must_use]
    pub fn unique() -> Self {
        static VERSIONS: AtomicU64 = AtomicU64::new(0);
        Self(VERSIONS.fetch_add(1, Ordering::Relaxed))
    }
}

/// Version of the workers of a [`FleetView`].
pub trait VersionedFleet {
    /// Returns the version, if columns may be kept from one decision to the next.
    ///
    /// Views of the same version have the same workers at the same indices, with the same specifications. Their
    /// [`WorkerColumns`] have the methods `load` and `cost` that the trait provides.
    fn fleet_version(&self) -> Option<FleetVersion> {
        None
    }
}

/// Numbers of workers at one moment.
pub trait WorkerColumns {
    /// Returns a worker's load.
    fn load(&self, _member: usize, worker: &Worker) -> LoadReading {
        worker.load().read()
    }

    /// Returns for how long a worker has been known.
    fn age(&self, member: usize) -> Duration;

    /// Returns a worker's failures in a row.
    fn failures(&self, member: usize) -> u32;

    /// Returns the number of blocks that the index has of a worker. `None` if its events do not arrive.
    fn cache_blocks(&self, member: usize) -> Option<u64>;

    /// Returns the time on the clock of a worker's load reports, in milliseconds.
    fn report_clock_ms(&self, member: usize) -> u64;

    /// Returns a predicted cost in milliseconds; NaN while it is unknown.
    fn cost(&self, feature: CostFeature, row: &CandidateRow<'_>) -> f64 {
        row.numbers.learned_cost(feature)
    }
}

/// Identity of a request. Together with the attempt it seeds all random choices about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestIdentity {
    /// Number of the request, from 1.
    pub seq: u64,
    /// Number of the process that counts them.
    pub run: RunNumber,
    /// Hash of the client's session key.
    pub session: Option<u64>,
}

/// Values that a request or its route states. They stay the same over all decisions about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestValues {
    /// Length of the prompt in tokens, where it is known.
    pub prompt_tokens: Option<u64>,
    /// Length of the prompt in tokens, estimated where it is not known.
    pub estimated_tokens: u32,
    /// Most tokens of the answer.
    pub max_tokens: Option<u64>,
    /// Length of the body.
    pub body_bytes: u64,
    /// Priority that the client requests.
    pub priority: Option<i64>,
    /// Set if the answer is streamed.
    pub stream: bool,
    /// Target time from the arrival to the first token.
    pub ttft_target: Option<Duration>,
}

/// The request.
pub trait RequestView {
    /// Answers to a policy's queries about it.
    type Queries: QuerySource;

    /// Returns its identity.
    fn identity(&self) -> RequestIdentity;

    /// Returns the ways in which it may be placed.
    fn allowed(&self) -> AllowedShapes;

    /// Returns the values that it or its route states.
    fn values(&self) -> RequestValues;

    /// Returns the time since it arrived.
    fn waited(&self) -> Duration;

    /// Returns a hash of so many of its first prompt tokens. `None` if they are not known.
    fn prefix_key(&self, tokens: u32) -> Option<u64>;

    /// Returns the answers to a policy's queries.
    fn queries(&self) -> Self::Queries;
}

/// The request's pool and its queue.
pub trait PoolView {
    /// Returns how many requests are held, this one included.
    fn queued(&self) -> usize;

    /// Returns how many may be held.
    fn queue_limit(&self) -> usize;

    /// Returns for how long this request may still be held.
    fn hold_left(&self) -> Duration;

    /// Returns how many workers serve the request's model.
    fn serving_workers(&self) -> usize;
}

/// The policies that decide, and their clock.
pub trait PolicyView {
    /// Error of a decision where no policy has a verdict and there is no fallback.
    type NoAnswer;

    /// Returns the policy of a phase.
    fn policy(&self, phase: Phase) -> &PolicyVersions;

    /// Returns whether a phase has a policy of its own, so that no call places both legs.
    fn has_phase_policies(&self) -> bool;

    /// Returns the fallback.
    ///
    /// # Errors
    /// [`PolicyView::NoAnswer`] where a policy's failure is the result.
    fn fallback(&self) -> Result<&LeastLoaded, Self::NoAnswer>;

    /// Returns microseconds on the policies' clock, virtual or monotonic.
    fn now_us(&self) -> u64;
}

/// View of everything that a decision reads.
pub trait PlacementView: FleetView + VersionedFleet + RequestView + PoolView + PolicyView {}

impl<V: FleetView + VersionedFleet + RequestView + PoolView + PolicyView> PlacementView for V {}
