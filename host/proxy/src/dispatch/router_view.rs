//! View of the server for decisions: a pool's members with their health, its queue, the request, and the route's policies.

use std::cell::LazyCell;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use placement::{
    AllowedShapes, Eligibility, FleetView, PolicyView, PoolView, PrefixMatches, RequestIdentity,
    RequestValues, RequestView, WorkerColumns,
};
use routing::{LeastLoaded, Phase, PolicyVersions, Worker};

use crate::dispatch::queries::RequestQueries;
use crate::fleet::catalog::ServedModel;
use crate::fleet::feeds::LiveNow;
use crate::fleet::pool::Member;
use crate::limits::admission::{QueuePosition, longest_hold};
use crate::proxy::Proxy;
use crate::request::context::{HashedPrompt, RequestContext};
use crate::request::snapshot::PoolState;

/// Limits of a request's time in the queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HoldWindow {
    /// Queue position of the request, once it was held.
    pub(crate) turn: Option<QueuePosition>,
    /// Time by which its answer must have begun.
    pub(crate) deadline: Option<tokio::time::Instant>,
}

/// The server's state with regard to one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouterView<'a> {
    pub(crate) proxy: &'a Proxy,
    pub(crate) request: &'a Arc<RequestContext>,
    pub(crate) window: HoldWindow,
    pool: &'a PoolState,
    served: &'a ServedModel,
}

/// Numbers of a pool's members at one moment.
pub(crate) struct MemberColumns<'a> {
    proxy: &'a Proxy,
    members: &'a [Member],
    live: LiveNow<'a>,
    now: LazyCell<Instant>,
}

impl<'a> RouterView<'a> {
    pub(crate) fn new(proxy: &'a Proxy, request: &'a Arc<RequestContext>, window: HoldWindow) -> Self {
        Self {
            proxy,
            request,
            window,
            pool: request.pool(),
            served: request.served.now(),
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

    fn worker(&self, member: usize) -> &Arc<Worker> {
        &self.pool.workers.members[member].worker
    }

    fn serves(&self, member: usize) -> bool {
        self.served.has(member)
    }

    fn is_draining(&self, member: usize) -> bool {
        self.pool.workers.members[member].link.health.is_draining()
    }

    fn eligibility(&self, member: usize, seed: u64) -> Eligibility {
        let member = &self.pool.workers.members[member];
        if is_out_of_service(member) {
            Eligibility::OutOfService
        } else if member.link.admits(seed) {
            Eligibility::Healthy
        } else {
            Eligibility::Returning
        }
    }

    fn columns<'a>(&'a self, _members: &[usize], _matches: Option<&PrefixMatches>) -> Self::Columns<'a> {
        MemberColumns::new(self.proxy, &self.pool.workers.members)
    }
}

/// Returns `true` if a worker is out of service, or if its bootstrap server has no engine. Without an engine no leg can
/// meet another there.
fn is_out_of_service(member: &Member) -> bool {
    let engines = member.bootstrap.as_ref().and_then(|server| server.engines());
    member.link.is_out() || engines == Some(0)
}

impl<'a> MemberColumns<'a> {
    pub(crate) fn new(proxy: &'a Proxy, members: &'a [Member]) -> Self {
        Self {
            proxy,
            members,
            live: proxy.live.now(),
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
        self.live.contains(id).then(|| self.proxy.index.held_blocks(id))
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
        self.request.arrived.elapsed()
    }

    fn prefix_key(&self, tokens: u32) -> Option<u64> {
        self.request.prompt.as_ref()?.lock().key(tokens as usize)
    }

    fn queries(&self) -> RequestQueries {
        RequestQueries::new(self.proxy, self.request)
    }
}

impl RequestContext {
    pub(crate) fn identity(&self) -> RequestIdentity {
        RequestIdentity {
            seq: self.seq,
            run: self.run,
            session: self.session,
        }
    }

    pub(crate) fn values(&self) -> RequestValues {
        RequestValues {
            prompt_tokens: self
                .prompt
                .as_ref()
                .map(|prompt| HashedPrompt::tokens(prompt) as u64),
            estimated_tokens: self.prompt_tokens(),
            max_tokens: self.max_tokens,
            body_bytes: self.body.len() as u64,
            priority: self.priority,
            stream: self.stream,
        }
    }
}

impl PoolView for RouterView<'_> {
    fn queued(&self) -> usize {
        self.pool.queue.len()
    }

    fn queue_limit(&self) -> usize {
        self.pool.queue_limit
    }

    fn hold_left(&self) -> Duration {
        let HoldWindow { turn, deadline } = self.window;
        let first = || longest_hold(self.pool.queue_timeout, deadline);
        turn.map_or_else(first, |turn| turn.left())
    }

    fn serving_workers(&self) -> usize {
        self.pool.workers.serving(&self.request.model).count()
    }
}

impl PolicyView for RouterView<'_> {
    /// The fallback always has an answer.
    type NoAnswer = Infallible;

    fn policy(&self, phase: Phase) -> &PolicyVersions {
        &self.request.decider(phase).policy
    }

    fn has_phase_policies(&self) -> bool {
        self.request.route().is_by_phase()
    }

    fn fallback(&self) -> Result<&LeastLoaded, Infallible> {
        Ok(&self.proxy.fallback)
    }

    fn now_us(&self) -> u64 {
        self.proxy.now_us()
    }
}
