//! Run: requests arrive, policies place them, engines work, and the outcome is recorded.

mod agenda;
mod held_queue;
mod legs;
mod sample;
mod spec;
mod turns;

use routing::{CapacityEvent, Role};

use self::agenda::{Agenda, AgendaItem};
use self::held_queue::{HeldQueue, HeldRequest};
use self::sample::Sampler;
pub use self::spec::{Failure, RunSpec};
use self::turns::LaterTurns;
use crate::engine::{Cluster, EngineEvent, EngineEventKind, Fetch, Job, JobKind, TokenGaps};
use crate::outcome::{End, Outcome, RequestOutcome, WorkerUse};
use crate::request::Trace;
use crate::router::{ArrivedRequest, Placement, Policies, Routers};

/// Runs a trace's requests on a cluster with these policies, one for each router. Without policies, one router chooses
/// by load.
#[must_use]
pub fn run(trace: &Trace, policies: impl IntoIterator<Item = Policies>, spec: &RunSpec) -> Outcome {
    let mut run = Run::new(trace, policies, spec);
    run.begin();
    run.go();
    run.end()
}

struct Run<'r> {
    trace: &'r Trace,
    spec: &'r RunSpec,
    /// Requests that arrive after the end of another.
    later: LaterTurns,
    agenda: Agenda,
    cluster: Cluster,
    routers: Routers,
    /// Queue of each router.
    lines: Vec<HeldQueue>,
    /// Number of decisions and last destination of each request.
    tries: Vec<Try>,
    /// Flag of each worker: set while it is away.
    away: Vec<bool>,
    /// Requests that have not ended.
    open: usize,
    sampler: Sampler,
    outcome: Outcome,
}

/// Workers of a request.
#[derive(Debug, Clone, Copy)]
struct RequestLegs {
    /// The worker that answers.
    answers: usize,
    /// The worker that computes the prompt, if another.
    prefill: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Try {
    decisions: u32,
    legs: Option<RequestLegs>,
    /// The worker that computed its prompt, until another takes it over.
    kept: Option<usize>,
    /// The one that answers has sent a token.
    answers: bool,
}

impl<'r> Run<'r> {
    fn new(trace: &'r Trace, policies: impl IntoIterator<Item = Policies>, spec: &'r RunSpec) -> Self {
        let requests = trace.requests.len();
        let workers = &spec.cluster.workers;
        let mut routers = Routers::new(&spec.cluster, trace.block_tokens, policies, &spec.router);
        routers.assign(&trace.requests, &spec.router);
        Self {
            trace,
            spec,
            later: LaterTurns::of(trace),
            agenda: Agenda::default(),
            cluster: Cluster::new(&spec.cluster, trace.block_tokens),
            lines: (0..routers.count()).map(|_| HeldQueue::default()).collect(),
            routers,
            tries: vec![Try::default(); requests],
            away: vec![false; workers.len()],
            open: requests,
            sampler: Sampler::new(spec.sample_every_us),
            outcome: Outcome {
                courses: trace
                    .requests
                    .iter()
                    .map(|request| RequestOutcome::arrived(request.at_us))
                    .collect(),
                workers: workers
                    .iter()
                    .map(|worker| WorkerUse {
                        computes: worker.role != Role::Decode,
                        ..WorkerUse::default()
                    })
                    .collect(),
                ..Outcome::default()
            },
        }
    }

    fn begin(&mut self) {
        for (number, request) in self.trace.requests.iter().enumerate() {
            if request.after.is_none() {
                self.agenda.add(request.at_us, AgendaItem::Arrives(number));
            }
        }
        for failure in &self.spec.failures {
            self.agenda.add(failure.at_us, AgendaItem::Fails(failure.worker));
            if let Some(back_us) = failure.back_us {
                self.agenda.add(back_us, AgendaItem::Returns(failure.worker));
            }
        }
        for death in &self.spec.router.deaths {
            self.agenda.add(death.at_us, AgendaItem::RouterDies(death.router));
        }
        self.agenda.add(0, AgendaItem::Tick);
        if self.spec.scrape_every_us > 0 {
            self.agenda.add(0, AgendaItem::Scrape);
        }
        if self.spec.sample_every_us > 0 {
            self.agenda.add(0, AgendaItem::Sample);
        }
    }

    /// Runs until all requests have ended, or nothing is left that could end one.
    fn go(&mut self) {
        let mut events = Vec::new();
        while self.open > 0 {
            let engines = self.cluster.next_at();
            if engines.is_none() && self.agenda.has_only_chores() {
                return;
            }
            let agenda = self.agenda.next_at();
            let exchange = self.routers.next_exchange_at();
            let others = engines.into_iter().chain(agenda).min();
            if let Some(at_us) = exchange.filter(|at| others.is_none_or(|others| *at < others)) {
                self.exchange(at_us);
                continue;
            }
            match (engines, agenda) {
                (Some(at_us), agenda) if agenda.is_none_or(|agenda| at_us <= agenda) => {
                    self.cluster.advance(at_us, &mut events);
                    events.drain(..).for_each(|event| self.handle(event));
                }
                _ => {
                    let Some((at_us, due)) = self.agenda.pop() else {
                        return;
                    };
                    self.act(at_us, due);
                }
            }
        }
    }

    fn end(mut self) -> Outcome {
        self.outcome.router = self.routers.counts();
        self.outcome.samples = self.sampler.end();
        self.outcome
    }

    fn act(&mut self, now_us: u64, due: AgendaItem) {
        match due {
            AgendaItem::Arrives(number) => self.place(now_us, number),
            AgendaItem::HoldExpires(number, decisions) => {
                // The request may have been decided since because there was room.
                if self.tries[number].decisions == decisions {
                    self.place(now_us, number);
                }
            }
            AgendaItem::Deferred(router) => {
                if let Some(event) = self.lines[router].take_deferred(now_us) {
                    self.decide_held(now_us, router, event);
                }
            }
            AgendaItem::Fails(worker) => self.fail(now_us, worker),
            AgendaItem::RouterDies(router) => self.router_dies(now_us, router),
            AgendaItem::Returns(worker) => {
                self.away[worker] = false;
                self.routers.back(now_us, worker);
                for router in 0..self.lines.len() {
                    self.reevaluate_held(now_us, router, CapacityEvent::anywhere());
                }
            }
            AgendaItem::Tick => {
                if let Some(next_us) = self.routers.tick(now_us) {
                    self.agenda.add(next_us.max(now_us + 1), AgendaItem::Tick);
                }
            }
            AgendaItem::Scrape => {
                for (worker, engine) in self.cluster.workers().iter().enumerate() {
                    if !self.away[worker] {
                        self.routers.record_engine_load(now_us, worker, &engine.load());
                    }
                }
                self.agenda
                    .add(now_us + self.spec.scrape_every_us, AgendaItem::Scrape);
            }
            AgendaItem::Sample => {
                self.sample(now_us);
                self.agenda
                    .add(now_us + self.sampler.every_us(), AgendaItem::Sample);
            }
        }
    }

    /// Places a request, or what is left of it.
    fn place(&mut self, now_us: u64, number: usize) {
        let arrived = ArrivedRequest {
            number,
            request: &self.trace.requests[number],
            arrived_us: self.outcome.courses[number].arrived_us,
        };
        let Try { decisions, kept, .. } = self.tries[number];
        self.tries[number].decisions += 1;
        let placement = match kept {
            None => self.routers.place(now_us, arrived, decisions),
            Some(_) => self.routers.place_answer(now_us, arrived, decisions),
        };
        if !matches!(placement, Placement::Hold { .. }) {
            self.line_of(number).leave(number);
            self.tries[number].kept = None;
        }
        match (placement, kept) {
            (Placement::Dispatch { worker, .. }, Some(from)) => {
                self.hand_over(now_us, number, worker, from);
            }
            (
                Placement::Dispatch {
                    worker,
                    prefill,
                    fetch,
                    ..
                },
                None,
            ) => {
                let legs = RequestLegs {
                    answers: worker,
                    prefill,
                };
                self.dispatch(now_us, number, legs, fetch);
            }
            (
                Placement::Hold {
                    order,
                    reevaluate_after_us,
                    waits_for,
                },
                _,
            ) => {
                self.line_of(number).hold(number, order, waits_for);
                let due = AgendaItem::HoldExpires(number, self.tries[number].decisions);
                self.agenda.add(now_us + reevaluate_after_us.max(1), due);
            }
            (Placement::Forget, _) => self.place(now_us, number),
            (Placement::Reject { status, why, .. }, kept) => {
                let rejected = End::Rejected {
                    status,
                    computed: kept.is_some(),
                    reason: why,
                };
                self.close(now_us, number, rejected);
            }
        }
    }

    fn dispatch(&mut self, now_us: u64, number: usize, legs: RequestLegs, fetch: Option<Fetch>) {
        let RequestLegs { answers, prefill } = legs;
        self.tries[number].legs = Some(legs);
        let course = &mut self.outcome.courses[number];
        course.dispatched_us.get_or_insert(now_us);
        (course.worker, course.prefill) = (Some(answers), Some(prefill.unwrap_or(answers)));
        let (at, kind) = match prefill {
            Some(prefill) => (prefill, JobKind::Prefill),
            None => (answers, JobKind::Whole),
        };
        if self.away[at] {
            return self.lose(now_us, number, at);
        }
        let job = self.job(number, kind, fetch);
        self.cluster.submit(now_us, at, job);
    }

    fn job(&self, number: usize, kind: JobKind, fetch: Option<Fetch>) -> Job {
        let request = &self.trace.requests[number];
        Job {
            request: number,
            arrived_us: self.outcome.courses[number].arrived_us,
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.output_tokens,
            blocks: request.blocks.clone(),
            grown_blocks: request.grown_blocks.clone(),
            kind,
            fetch,
        }
    }

    fn handle(&mut self, event: EngineEvent) {
        let EngineEvent { at_us, worker, kind } = event;
        // An engine goes on with the request of a router that died; nothing comes of it.
        if kind.request().is_some_and(|number| self.is_abandoned(number)) {
            return;
        }
        match kind {
            EngineEventKind::Cache(event) => self.routers.cache_event(at_us, worker, &event),
            EngineEventKind::PrefillDone { request, reuse } => self.prefilled(at_us, worker, request, reuse),
            EngineEventKind::FirstToken { request } => {
                self.tries[request].answers = true;
                self.first_token(at_us, worker, request);
            }
            EngineEventKind::Finished { request, gaps } => self.finished(at_us, request, gaps),
        }
    }

    fn first_token(&mut self, now_us: u64, worker: usize, number: usize) {
        self.outcome.courses[number].first_token_us.get_or_insert(now_us);
        self.routers.first_token(now_us, number, worker);
        // Without decoding, its end is reported next: it must not count as answered meanwhile.
        if self.spec.cluster.decode {
            self.released(now_us, number, self.routers.release_at(worker));
        }
    }

    fn finished(&mut self, now_us: u64, number: usize, gaps: TokenGaps) {
        let course = &mut self.outcome.courses[number];
        course.finished_us = Some(now_us);
        course.tbt_us = (gaps.count > 0).then_some(gaps.tbt_us);
        let tokens = self.trace.requests[number].output_tokens;
        self.routers.finished(now_us, number, tokens.into());
        self.close(now_us, number, End::Served);
        self.released(now_us, number, self.released_by(number));
    }

    /// Returns the capacity event of a request's end, at the worker that answered it.
    fn released_by(&self, number: usize) -> CapacityEvent {
        let legs = self.tries[number].legs;
        legs.map_or_else(CapacityEvent::anywhere, |legs| {
            self.routers.release_at(legs.answers)
        })
    }

    /// Returns the queue of a request's router.
    fn line_of(&mut self, number: usize) -> &mut HeldQueue {
        let router = self.routers.number_of(number);
        &mut self.lines[router]
    }

    /// Passes messages between the routers. One that learns of freed capacity decides its held requests again.
    fn exchange(&mut self, now_us: u64) {
        let Some(freed) = self.routers.exchange() else {
            return;
        };
        for worker in freed.workers {
            self.reevaluate_held(now_us, freed.router, CapacityEvent::elsewhere_at(worker));
        }
    }

    /// Decides held requests of a request's router again, after that request freed capacity.
    fn released(&mut self, now_us: u64, number: usize, release: CapacityEvent) {
        self.reevaluate_held(now_us, self.routers.number_of(number), release);
    }

    /// Decides a router's held requests again in their order after capacity was freed, within the wake budget, as the
    /// server does.
    fn reevaluate_held(&mut self, now_us: u64, router: usize, release: CapacityEvent) {
        let release = self.routers.release_for(router, release);
        let (release, deferred_us) = self.lines[router].paced(release, now_us);
        if let Some(at_us) = deferred_us {
            self.agenda.add(at_us, AgendaItem::Deferred(router));
        }
        self.decide_held(now_us, router, release);
    }

    /// Decides a router's held requests again in their order, within the event's budget.
    fn decide_held(&mut self, now_us: u64, router: usize, mut release: CapacityEvent) {
        for held in self.lines[router].in_order() {
            let HeldRequest {
                number,
                waits_for,
                order,
            } = held;
            if !release.reaches(order) {
                return;
            }
            if !release.has_budget(waits_for) || !self.lines[router].has(number) {
                continue;
            }
            release.spend(waits_for);
            self.place(now_us, number);
            if !self.lines[router].has(number) {
                release = release.reset();
            }
        }
    }

    /// Ends a request. Its client's next one arrives after a pause.
    fn close(&mut self, now_us: u64, number: usize, end: End) {
        self.outcome.courses[number].end = end;
        for turn in self.later.after(number) {
            let at_us = now_us + turn.pause_us;
            self.outcome.courses[turn.request].arrived_us = at_us;
            self.agenda.add(at_us, AgendaItem::Arrives(turn.request));
        }
        self.sampler.ended(end);
        self.open -= 1;
    }
}
