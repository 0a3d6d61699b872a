//! View of the server for decisions: a pool's members with their health, its queue, the request, and the route's
//! policies.

use std::cell::LazyCell;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use placement::{
    AllowedShapes, Eligibility, FleetVersion, FleetView, PolicyView, PoolView, PrefixMatches,
    RequestIdentity, RequestValues, RequestView, VersionedFleet, WorkerColumns,
};
use routing::{LeastLoaded, Phase, PolicyVersions, Worker};

use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::pool_state::PoolState;
use crate::dispatch::queries::RequestQueries;
use crate::dispatch::sources::DecisionSources;
use crate::fleet::catalog::ServedModel;
use crate::fleet::feeds::LiveNow;
use crate::fleet::pool::Member;
use crate::limits::admission::{QueuePosition, longest_hold};

/// Limits of a request's time in the queue, and its charge.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HoldWindow {
    /// Queue position of the request, once it was held.
    pub(crate) turn: Option<QueuePosition>,
    /// Time by which its answer must have begun.
    pub(crate) deadline: Option<tokio::time::Instant>,
    /// Charge that its tenant has for it.
    pub(crate) charged: Option<f64>,
}

/// The server's state with regard to one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouterView<'a> {
    pub(crate) sources: &'a DecisionSources,
    pub(crate) request: &'a Arc<InferenceRequest>,
    pub(crate) window: HoldWindow,
    pub(crate) pool: &'a Arc<PoolState>,
    served: &'a ServedModel,
}

/// Numbers of a pool's members at one moment.
pub(crate) struct MemberColumns<'a> {
    sources: &'a DecisionSources,
    members: &'a [Member],
    live: LiveNow<'a>,
    now: LazyCell<Instant>,
}

impl<'a> RouterView<'a> {
    pub(crate) fn new(
        sources: &'a DecisionSources,
        request: &'a Arc<InferenceRequest>,
        window: HoldWindow,
    ) -> Self {
        Self::within(request.pool(), sources, request, window)
    }

    /// Creates the view of an earlier pool of the request, for members that are known to serve its model:
    /// [`FleetView::serves`] is about the present pool.
    pub(crate) fn within(
        pool: &'a Arc<PoolState>,
        sources: &'a DecisionSources,
        request: &'a Arc<InferenceRequest>,
        window: HoldWindow,
    ) -> Self {
        Self {
            sources,
            request,
            window,
            pool,
            served: request.served().now(),
        }
    }
}

impl FleetView for RouterView<'_> {
    type Columns<'a>
        = MemberColumns<'a>
    where
        Self: 'a;

    fn member_count(&self) -> usize {
        self.pool.workers.members.len()
    }

    #[inline]
    fn worker(&self, member: usize) -> &Arc<Worker> {
        &self.pool.workers.members[member].worker
    }

    #[inline]
    fn serves(&self, member: usize) -> bool {
        self.served.has(member)
    }

    #[inline]
    fn is_draining(&self, member: usize) -> bool {
        self.pool.workers.members[member].link.health.is_draining()
    }

    #[inline]
    fn eligibility(&self, member: usize, seed: u64) -> Eligibility {
        let member = &self.pool.workers.members[member];
        // Nearly all workers, with one look.
        if member.bootstrap.is_none() && member.link.health.is_plain() {
            return Eligibility::Healthy;
        }
        if is_out_of_service(member) {
            Eligibility::OutOfService
        } else if member.link.admits(seed) {
            Eligibility::Healthy
        } else {
            Eligibility::Returning
        }
    }

    fn columns<'a>(&'a self, _members: &[usize], _matches: Option<&PrefixMatches>) -> Self::Columns<'a> {
        MemberColumns::new(self.sources, &self.pool.workers.members)
    }
}

impl VersionedFleet for RouterView<'_> {
    fn fleet_version(&self) -> Option<FleetVersion> {
        Some(self.pool.workers.version)
    }
}

/// Returns `true` if a worker is out of service, or if no leg can meet another at its bootstrap server.
fn is_out_of_service(member: &Member) -> bool {
    member.link.is_out() || member.is_engine_unknown()
}

impl<'a> MemberColumns<'a> {
    pub(crate) fn new(sources: &'a DecisionSources, members: &'a [Member]) -> Self {
        Self {
            sources,
            members,
            live: sources.live.now(),
            now: LazyCell::new(Instant::now),
        }
    }
}

impl WorkerColumns for MemberColumns<'_> {
    fn age(&self, member: usize) -> Duration {
        self.members[member].link.age(*self.now)
    }

    fn failures(&self, member: usize) -> u32 {
        self.members[member].link.health.failures()
    }

    fn cache_blocks(&self, member: usize) -> Option<u64> {
        let id = self.members[member].worker.id();
        self.live.contains(id).then(|| self.sources.index.held_blocks(id))
    }

    fn report_clock_ms(&self, member: usize) -> u64 {
        self.members[member].link.now_ms()
    }
}

impl RequestView for RouterView<'_> {
    type Queries = RequestQueries;

    fn identity(&self) -> RequestIdentity {
        self.request.identity()
    }

    fn allowed(&self) -> AllowedShapes {
        self.request.allowed()
    }

    fn values(&self) -> RequestValues {
        self.request.values()
    }

    fn waited(&self) -> Duration {
        self.request.head.arrived.elapsed()
    }

    fn prefix_key(&self, tokens: u32) -> Option<u64> {
        self.request.params.prompt.as_ref()?.lock().key(tokens as usize)
    }

    fn queries(&self) -> RequestQueries {
        RequestQueries::new(self.sources, self.request, self.pool, self.window.charged)
    }
}

impl PoolView for RouterView<'_> {
    fn queued(&self) -> usize {
        self.pool.queue.controller.len_of_fleet()
    }

    fn queue_limit(&self) -> usize {
        self.pool.queue.limit
    }

    fn hold_left(&self) -> Duration {
        let HoldWindow { turn, deadline, .. } = self.window;
        let first = || longest_hold(self.pool.queue.timeout, deadline);
        turn.map_or_else(first, |turn| turn.left())
    }

    fn serving_workers(&self) -> usize {
        self.pool.workers.serving(&self.request.params.model).count()
    }
}

impl PolicyView for RouterView<'_> {
    /// The fallback always has an answer.
    type NoAnswer = Infallible;

    fn policy(&self, phase: Phase) -> &PolicyVersions {
        &self.request.policy(phase).versions
    }

    fn has_phase_policies(&self) -> bool {
        self.request.policies.is_by_phase()
    }

    fn fallback(&self) -> Result<&LeastLoaded, Infallible> {
        Ok(&self.sources.fallback)
    }

    fn now_us(&self) -> u64 {
        self.sources.now_us()
    }
}
