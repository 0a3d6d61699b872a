//! Several routers before one cluster: each has its own loads, index and queue, and of the others' requests only
//! what engines report and what they share.

use std::sync::Arc;

use routing::{CapacityEvent, LeastLoaded, hash_mix};

use super::counts::RouterCounts;
use super::index::TracePrompt;
use super::placement::Placement;
use super::sharing::{FreedElsewhere, Sharing};
use super::single::{HandedPrompt, Replica, Router};
use super::spec::{Policies, RouterBalance, RouterSpec};
use super::state::ArrivedRequest;
use crate::engine::{CacheEvent, EngineLoad};
use crate::request::Request;
use crate::spec::ClusterSpec;

/// Routers that requests go to in turn, never none; one alone is the usual case.
#[derive(Debug)]
pub(crate) struct Routers {
    pub(super) routers: Vec<Router>,
    sharing: Option<Sharing>,
    dead: Vec<bool>,
    /// Router of each request by its session; empty if they go in turn.
    by_session: Vec<usize>,
    /// Set if routers expect the prompts that others have sent.
    expects_of_others: bool,
}

impl Routers {
    /// Returns one router for each of these policies, the rest as in [`Router::new`]. Without policies, one router
    /// sends to the least loaded worker. Routers may share policies that keep nothing: one that receives events has
    /// those of every worker from each.
    #[must_use]
    pub(crate) fn new(
        cluster: &ClusterSpec,
        block_tokens: u32,
        policies: impl IntoIterator<Item = Policies>,
        spec: &RouterSpec,
    ) -> Self {
        let mut policies: Vec<Policies> = policies.into_iter().collect();
        if policies.is_empty() {
            policies.push(Policies::One(Arc::new(LeastLoaded::default())));
        }
        // Where requests move to another router, each number is used once in all.
        let of = if spec.deaths.is_empty() && spec.balance == RouterBalance::Turn {
            policies.len() as u32
        } else {
            1
        };
        let router = |(at, policies)| {
            let replica = Replica { at, of };
            Router::new(cluster, block_tokens, policies, spec, replica)
        };
        let routers: Vec<Router> = (0..).zip(policies).map(router).collect();
        let shares = spec.sharing.clone().filter(|_| routers.len() > 1);
        Self {
            by_session: Vec::new(),
            expects_of_others: shares.as_ref().is_some_and(|sharing| sharing.expected),
            sharing: shares.map(|sharing| Sharing::new(sharing, &routers, spec.seed)),
            dead: vec![false; routers.len()],
            routers,
        }
    }

    /// Assigns each request to the router of its session, if the specification requires it.
    pub(crate) fn assign(&mut self, requests: &[Request], spec: &RouterSpec) {
        if spec.balance == RouterBalance::Session {
            let routers = self.routers.len();
            let place = |(number, request): (usize, &Request)| match request.session {
                Some(session) => (hash_mix(session) % routers as u64) as usize,
                None => number % routers,
            };
            self.by_session = requests.iter().enumerate().map(place).collect();
        }
    }

    /// Returns the event of freed capacity at that worker.
    pub(crate) fn release_at(&self, worker: usize) -> CapacityEvent {
        // All of them know the workers by the same numbers.
        let router = self.routers.first();
        router.map_or_else(CapacityEvent::anywhere, |router| {
            CapacityEvent::at(router.worker(worker).id())
        })
    }

    /// Returns the number of the router of a request, by its place in the trace: the next that lives.
    pub(crate) fn number_of(&self, number: usize) -> usize {
        let of = self.routers.len();
        let first = self.by_session.get(number).copied().unwrap_or(number % of);
        let mut in_turn = (0..of).map(|turn| (first + turn) % of);
        in_turn.find(|at| !self.dead[*at]).unwrap_or(first)
    }

    /// Records the death of a router, which had these requests. It sends no goodbye.
    pub(crate) fn die(&mut self, now_us: u64, router: usize, requests: &[usize]) {
        for number in requests {
            self.routers[router].left(now_us, *number);
        }
        self.dead[router] = true;
        if let Some(sharing) = &mut self.sharing {
            sharing.die(router);
        }
    }

    /// Returns the number of routers.
    pub(crate) fn count(&self) -> usize {
        self.routers.len()
    }

    /// Returns the router of a request, whose loads are about to change.
    fn of(&mut self, now_us: u64, number: usize) -> &mut Router {
        let at = self.number_of(number);
        if let Some(sharing) = &mut self.sharing {
            sharing.touch(now_us, at);
        }
        &mut self.routers[at]
    }

    /// Returns the event of freed capacity for requests that a router holds: up to the first that another one holds for
    /// the worker.
    pub(crate) fn release_for(&self, router: usize, release: CapacityEvent) -> CapacityEvent {
        let worker = release.worker().and_then(|id| {
            let workers = self.routers[router].state.fleet.workers();
            workers.get(id.0 as usize)
        });
        let first = worker.map(|worker| worker.load().others().first_order());
        release.up_to(first.unwrap_or(f64::INFINITY))
    }

    /// Returns the time of the next exchange between the routers.
    pub(crate) fn next_exchange_at(&self) -> Option<u64> {
        self.sharing.as_ref()?.next_at()
    }

    /// Does the next exchange. Returns the capacity that a router has learned of.
    pub(crate) fn exchange(&mut self) -> Option<FreedElsewhere> {
        self.sharing.as_mut()?.step(&mut self.routers)
    }

    /// Places a request, as [`Router::place`].
    pub(crate) fn place(&mut self, now_us: u64, arrived: ArrivedRequest<'_>, attempt: u32) -> Placement {
        let number = arrived.number;
        let placement = self.of(now_us, number).place(now_us, arrived, attempt);
        self.expect_elsewhere(&arrived, &placement);
        placement
    }

    /// Has the other routers expect a placed prompt where its own router does: of a pair, at the worker that computes
    /// it.
    fn expect_elsewhere(&self, arrived: &ArrivedRequest<'_>, placement: &Placement) {
        if self.expects_of_others
            && let Placement::Dispatch { worker, prefill, .. } = placement
        {
            let (prompt, sender) = (TracePrompt::of(arrived.request), self.number_of(arrived.number));
            self.expect_at(sender, prefill.unwrap_or(*worker), &prompt);
        }
    }

    /// Has all routers but the sender expect a prompt at a worker.
    fn expect_at(&self, sender: usize, worker: usize, prompt: &TracePrompt) {
        let others = self.routers.iter().enumerate().filter(|(at, _)| *at != sender);
        others.for_each(|(_, router)| router.state.index.expect(worker, prompt));
    }

    /// Places an answer, as [`Router::place_answer`].
    pub(crate) fn place_answer(
        &mut self,
        now_us: u64,
        arrived: ArrivedRequest<'_>,
        attempt: u32,
    ) -> Placement {
        let placement = self
            .of(now_us, arrived.number)
            .place_answer(now_us, arrived, attempt);
        self.expect_elsewhere(&arrived, &placement);
        placement
    }

    /// Records a refusal, as [`Router::refused`].
    pub(crate) fn refused(&mut self, now_us: u64, number: usize, worker: usize) {
        self.of(now_us, number).refused(now_us, number, worker);
    }

    /// Records the cached part of a prompt, as [`Router::prompt_cached`].
    pub(crate) fn prompt_cached(&mut self, number: usize, worker: usize, tokens: u32) {
        let at = self.number_of(number);
        self.routers[at].prompt_cached(number, worker, tokens);
    }

    /// Records a first token, as [`Router::first_token`].
    pub(crate) fn first_token(&mut self, now_us: u64, number: usize, worker: usize) {
        let handed = self.of(now_us, number).first_token(now_us, number, worker);
        if let Some(HandedPrompt { worker, prompt }) = handed.filter(|_| self.expects_of_others) {
            self.expect_at(self.number_of(number), worker, &prompt);
        }
    }

    /// Records the end of an answer, as [`Router::finished`].
    pub(crate) fn finished(&mut self, now_us: u64, number: usize, tokens: u64) {
        self.of(now_us, number).finished(now_us, number, tokens);
    }

    /// Records a failure, as [`Router::lost`].
    pub(crate) fn lost(&mut self, now_us: u64, number: usize, worker: usize) {
        self.of(now_us, number).lost(now_us, number, worker);
    }

    /// Records that the client left, as [`Router::left`].
    pub(crate) fn left(&mut self, now_us: u64, number: usize) {
        self.of(now_us, number).left(now_us, number);
    }

    /// Applies [`Router::cache_event`] to all routers.
    pub(crate) fn cache_event(&mut self, now_us: u64, worker: usize, event: &CacheEvent) {
        for router in &mut self.routers {
            router.cache_event(now_us, worker, event);
        }
    }

    /// Applies [`Router::record_engine_load`] to all routers.
    pub(crate) fn record_engine_load(&mut self, now_us: u64, worker: usize, load: &EngineLoad) {
        for router in &mut self.routers {
            router.record_engine_load(now_us, worker, load);
        }
    }

    /// Applies [`Router::gone`] to all routers.
    pub(crate) fn gone(&mut self, now_us: u64, worker: usize) {
        for router in &mut self.routers {
            router.gone(now_us, worker);
        }
    }

    /// Applies [`Router::back`] to all routers.
    pub(crate) fn back(&mut self, now_us: u64, worker: usize) {
        for router in &mut self.routers {
            router.back(now_us, worker);
        }
    }

    /// Applies [`Router::tick`] to all routers. Returns the earliest time of the next tick.
    pub(crate) fn tick(&mut self, now_us: u64) -> Option<u64> {
        let routers = self.routers.iter_mut();
        routers.filter_map(|router| router.tick(now_us)).min()
    }

    /// Returns the number of held requests of all routers.
    #[must_use]
    pub(crate) fn held(&self) -> usize {
        self.routers.iter().map(Router::held).sum()
    }

    /// Returns the sum of their counters.
    #[must_use]
    pub(crate) fn counts(&self) -> RouterCounts {
        let mut counts = RouterCounts::default();
        self.routers.iter().for_each(|router| counts += router.counts());
        counts
    }
}
