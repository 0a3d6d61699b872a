//! Router: places requests and receives their events, in virtual time.

use std::collections::HashMap;
use std::sync::Arc;

use placement::{Candidates, PlacementPart};
use routing::{EventKind, LeastLoaded, RunNumber, SplitMix64, Worker};

use super::backlog::Backlog;
use super::bookings::Bookings;
use super::counts::RouterCounts;
use super::events::EventDispatcher;
use super::fleet::SimFleet;
use super::index::{IndexView, TracePrompt};
use super::noted_request::NotedRequest;
use super::placement::Placement;
use super::prices::Prices;
use super::spec::{Policies, PolicyChains, RouterSpec};
use super::state::{ArrivedRequest, RequestAttempts, RouterState};
use crate::engine::{CacheEvent, EngineLoad};
use crate::spec::ClusterSpec;

/// A router.
#[derive(Debug)]
pub(crate) struct Router {
    pub(super) policies: PolicyChains,
    pub(super) fallback: LeastLoaded,
    pub(super) state: RouterState,
    /// Buffers of the decisions.
    pub(super) candidates: Candidates,
    pub(super) bookings: Bookings,
    /// Attempts of requests that were held or tried. Only looked up, never iterated.
    pub(super) attempts: HashMap<usize, RequestAttempts>,
    pub(super) events: EventDispatcher,
    pub(super) counts: RouterCounts,
    replica: Replica,
    pub(super) run: RunNumber,
}

/// Prompt that its prefill worker has computed for another worker.
#[derive(Debug)]
pub(crate) struct HandedPrompt {
    /// The other worker.
    pub(super) worker: usize,
    pub(super) prompt: Arc<TracePrompt>,
}

/// Position among several routers that get the requests in rotation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replica {
    /// Number of the attempt, from 0.
    pub(crate) at: u32,
    /// Routers there are, at least 1.
    pub(crate) of: u32,
}

impl Replica {
    /// Returns the run number of this replica, which each process of the server draws for itself. That of the first is
    /// the seed alone.
    fn run(self, seed: u64) -> RunNumber {
        let first = seed << 32;
        match self.at {
            0 => RunNumber(first),
            at => RunNumber(SplitMix64::of_decision(first, at).next()),
        }
    }
}

impl Router {
    /// Returns a router of a cluster whose workers are idle and whose caches are empty. `block_tokens` is that of the
    /// trace.
    #[must_use]
    pub(crate) fn new(
        cluster: &ClusterSpec,
        block_tokens: u32,
        policies: Policies,
        spec: &RouterSpec,
        replica: Replica,
    ) -> Self {
        let fleet = SimFleet::new(cluster, spec.rest_us);
        let listeners = policies.iter().flat_map(|policy| policy.listeners()).collect();
        let backlogs = fleet.workers().iter().map(|_| Backlog::default()).collect();
        Self {
            events: EventDispatcher::new(listeners, fleet.workers()),
            candidates: Candidates::default(),
            state: RouterState {
                index: IndexView::new(cluster, fleet.ids(), block_tokens, spec, replica.at),
                fleet,
                prices: Prices::new(cluster, &spec.costs, spec.seed),
                backlogs,
                queue: spec.queue,
                held: 0,
                held_elsewhere: 0,
                waiters: Arc::default(),
                decode_alone: spec.decode_alone,
            },
            policies: PolicyChains::of(policies),
            fallback: LeastLoaded::default(),
            bookings: Bookings::new(),
            attempts: HashMap::new(),
            counts: RouterCounts::default(),
            run: replica.run(spec.seed),
            replica,
        }
    }

    /// Decides about a request that was decided `attempt` times before. One that goes out is booked.
    pub(crate) fn place(&mut self, now_us: u64, arrived: ArrivedRequest<'_>, attempt: u32) -> Placement {
        self.place_part(now_us, arrived, attempt, PlacementPart::Request)
    }

    /// Places the answer to a prompt that is computed, and whose decode worker was [`lost`](Self::lost).
    pub(crate) fn place_answer(
        &mut self,
        now_us: u64,
        arrived: ArrivedRequest<'_>,
        attempt: u32,
    ) -> Placement {
        self.place_part(now_us, arrived, attempt, PlacementPart::Decode)
    }

    /// Records how many tokens of its prompt that worker did not compute.
    pub(crate) fn prompt_cached(&mut self, number: usize, worker: usize, tokens: u32) {
        if let Some(booking) = self.bookings.get_mut(&number) {
            let share = booking.prefills.as_mut().unwrap_or(&mut booking.answers);
            if share.worker == worker {
                share.prompt_cached(tokens);
            }
        }
    }

    /// Records the answer's first token from that worker, or the end of its leg if it computes the prompt for another.
    /// Returns the prompt then.
    pub(crate) fn first_token(&mut self, now_us: u64, number: usize, worker: usize) -> Option<HandedPrompt> {
        let booking = self.bookings.get_mut(&number)?;
        let session = booking.session;
        let of = NotedRequest { number, session };
        if let Some(mut leg) = booking.prefills.take_if(|leg| leg.worker == worker) {
            let after_ms = leg.first_token(now_us);
            booking.answers.dispatched_us = now_us;
            let (answers, tokens) = (booking.answers.worker, f64::from(booking.prompt_tokens));
            let handed = booking.handed.take();
            if let Some(prompt) = &handed {
                self.state.index.expect(answers, prompt);
            }
            self.prefilled(now_us, number, worker);
            self.note(now_us, EventKind::FirstToken, of, worker, after_ms.unwrap_or(0.0));
            self.note(now_us, EventKind::Finished, of, worker, leg.after_ms(now_us));
            self.note(now_us, EventKind::Dispatched, of, answers, tokens);
            return handed.map(|prompt| HandedPrompt {
                worker: answers,
                prompt,
            });
        }
        if booking.answers.worker == worker
            && let Some(after_ms) = booking.answers.first_token(now_us)
        {
            self.prefilled(now_us, number, worker);
            self.note(now_us, EventKind::FirstToken, of, worker, after_ms);
        }
        None
    }

    /// Records the complete answer: so many tokens.
    pub(crate) fn finished(&mut self, now_us: u64, number: usize, tokens: u64) {
        let Some(booking) = self.bookings.remove(&number) else {
            return;
        };
        self.attempts.remove(&number);
        // Of a prompt without an event of its end.
        for share in booking.prefills.iter().chain([&booking.answers]) {
            self.state.backlogs[share.worker].remove(number, now_us);
        }
        booking.answers.decoded(tokens, now_us);
        let (worker, after_ms) = (booking.answers.worker, booking.answers.after_ms(now_us));
        let session = booking.session;
        let of = NotedRequest { number, session };
        self.note(now_us, EventKind::Finished, of, worker, after_ms);
    }

    /// Records that a worker failed at the request. Everything booked for the request is given back, and it is not
    /// offered that worker again.
    pub(crate) fn lost(&mut self, now_us: u64, number: usize, worker: usize) {
        self.state.fleet.failed(worker, now_us);
        let id = self.worker(worker).id();
        self.attempts.entry(number).or_default().tried.push(id);
        self.give_back(now_us, number, Some(worker));
    }

    /// Records that a decode worker refused the request, and its client receives the refusal.
    pub(crate) fn refused(&mut self, now_us: u64, number: usize, worker: usize) {
        self.attempts.remove(&number);
        self.give_back(now_us, number, Some(worker));
    }

    /// Records that the client left; the request may be anywhere.
    pub(crate) fn left(&mut self, now_us: u64, number: usize) {
        if let Some(attempts) = self.attempts.remove(&number) {
            self.state.held -= usize::from(attempts.is_held);
            self.state.waits_no_more(number, attempts.waits_for);
        }
        self.give_back(now_us, number, None);
    }

    /// Records a change of a worker's cache.
    pub(crate) fn cache_event(&mut self, now_us: u64, worker: usize, event: &CacheEvent) {
        self.state.index.publish(now_us, worker, event);
    }

    /// Records an engine's load report.
    pub(crate) fn record_engine_load(&mut self, now_us: u64, worker: usize, load: &EngineLoad) {
        let report = self.state.fleet.report(worker, load);
        self.worker(worker)
            .load()
            .record_engine_report(report, now_us / 1_000);
    }

    /// Marks a worker as known to be gone. Requests that it had are reported as [`lost`](Self::lost) besides.
    pub(crate) fn gone(&mut self, now_us: u64, worker: usize) {
        self.state.fleet.gone(worker);
        self.state.index.forget(worker);
        self.note_worker(now_us, EventKind::Left, worker);
    }

    /// Records that a worker is there again, with an empty cache.
    pub(crate) fn back(&mut self, now_us: u64, worker: usize) {
        self.state.fleet.back(worker, now_us);
        self.note_worker(now_us, EventKind::Joined, worker);
    }

    /// Does what is due by the clock; gives the time at which something is again, if ever.
    pub(crate) fn tick(&mut self, now_us: u64) -> Option<u64> {
        self.catch_up(now_us);
        self.events.next_tick_us()
    }

    /// Returns the load of a worker: requests that this router has sent to it and not yet had back.
    #[cfg(test)]
    pub(crate) fn load(&self, worker: usize) -> routing::LoadReading {
        self.worker(worker).load().read()
    }

    /// Returns the number of held requests.
    #[must_use]
    pub(crate) fn held(&self) -> usize {
        self.state.held
    }

    /// Returns its counters.
    #[must_use]
    pub(crate) fn counts(&self) -> RouterCounts {
        RouterCounts {
            listener_faults: self.events.faults(),
            events_lost: self.state.index.lost(),
            ..self.counts.clone()
        }
    }
}

/// Internal parts of a router.
impl Router {
    pub(super) fn worker(&self, worker: usize) -> &Arc<Worker> {
        &self.state.fleet.workers()[worker]
    }

    /// Returns the request's number at this router, from 1, as each process of the server counts.
    pub(super) fn seq(&self, number: usize) -> u64 {
        number as u64 / u64::from(self.replica.of) + 1
    }

    pub(super) fn catch_up(&mut self, now_us: u64) {
        self.state.index.catch_up(now_us);
        self.events.deliver(now_us);
    }
}

/// Returns a session's key with uniformly distributed bits, like the server's hash.
pub(super) fn session_hash(session: u64) -> u64 {
    SplitMix64::of_decision(session, 0).next()
}
