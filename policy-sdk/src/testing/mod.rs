//! Native test driver for policies: a synthetic fleet that answers like the router, for tests and benches.
//!
//! ```
//! # use conductor_policy_sdk::{Call, Column, Configured, Host, Params, Plan, Policy, Verdict, testing::Scenario};
//! # struct Least { requests: Column }
//! # impl Policy for Least {
//! #     const NAME: &'static str = "least";
//! #     const VERSION: &'static str = "1";
//! #     fn configure(_: &mut Params, plan: &mut Plan) -> Self {
//! #         Self { requests: plan.column("load.requests") }
//! #     }
//! #     fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
//! #         Verdict::route_to(call.least(|| host.random(), |row| row.get(self.requests)))
//! #     }
//! # }
//! let policy = Configured::<Least>::new("{}")?;
//! let mut fleet = Scenario::new(["a", "b"]);
//! fleet.set("a", "load.requests", 3.0);
//! assert_eq!(fleet.route(&policy), Some("b"));
//! # Ok::<(), String>(())
//! ```

mod answers;
mod numbers;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::call::{Phase, Request, WorkerId};
use crate::event::{Event, EventKind, Events, Tick};
use crate::hash::mix;
use crate::host::{Level, Role};
use crate::plan::Plan;
use crate::policy::{Configured, Policy};
use crate::scorer::{ConfiguredScorer, Scorer};
use crate::verdict::Verdict;
use numbers::{CANDIDATE, PIECE_TOKENS, REQUEST, ROLE, default_of, look_up, prefix_keys};

/// Numbers of matched tokens, the fastest tier first.
const TIERS: [&str; 3] = ["prefix.device-tokens", "prefix.host-tokens", "prefix.any-tokens"];

/// Synthetic fleet and request, changed between calls as a test needs.
///
/// It counts requests and keeps the policy's state over calls. A misspelt name panics, because the test would
/// otherwise check nothing.
#[derive(Debug)]
pub struct Scenario {
    workers: Vec<TestWorker>,
    offered: Vec<WorkerId>,
    numbers: BTreeMap<String, f64>,
    headers: BTreeMap<String, String>,
    model: String,
    request: Request,
    now_us: u64,
    state: RefCell<BTreeMap<String, Vec<u8>>>,
    /// Worker and expiry time in microseconds, by session.
    sessions: RefCell<BTreeMap<u64, (WorkerId, u64)>>,
    /// Held requests: the worker that each waits for, and its work there.
    waiting: Vec<(WorkerId, u32)>,
    /// Row and work of the last [`Host::wait_for`](crate::Host::wait_for).
    waits_for: Cell<Option<(usize, u32)>>,
    logged: RefCell<Vec<(Level, String)>>,
    drawn: Cell<u64>,
    /// Workers of the batch of events that is being delivered.
    batch: Option<Vec<WorkerId>>,
}

#[derive(Debug)]
struct TestWorker {
    name: String,
    labels: BTreeMap<String, String>,
    numbers: BTreeMap<String, f64>,
}

impl Scenario {
    /// Creates idle mixed workers of weight 1 with unknown caches, all of them candidates, and a request
    /// without known numbers.
    ///
    /// The prompt's tokens are unknown, and [`Host::matched`](crate::Host::matched) is empty, until a candidate's
    /// `prefix.*-tokens` is set, as by [`holds`](Self::holds).
    #[must_use]
    pub fn new<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        let worker = |name: N| TestWorker {
            name: name.into(),
            labels: BTreeMap::new(),
            numbers: BTreeMap::new(),
        };
        let workers: Vec<_> = names.into_iter().map(worker).collect();
        Self {
            offered: (0..workers.len() as WorkerId).collect(),
            workers,
            numbers: BTreeMap::new(),
            headers: BTreeMap::new(),
            model: String::new(),
            request: Request::default(),
            now_us: 0,
            state: RefCell::default(),
            sessions: RefCell::default(),
            waiting: Vec::new(),
            waits_for: Cell::default(),
            logged: RefCell::default(),
            drawn: Cell::default(),
            batch: None,
        }
    }

    /// Sets a number of a candidate, such as `load.requests`.
    pub fn set(&mut self, worker: &str, feature: &str, value: f64) -> &mut Self {
        default_of(CANDIDATE, feature);
        self.worker(worker).numbers.insert(feature.to_owned(), value);
        self
    }

    /// Adds to a number of a candidate; an unknown number starts at 0.
    pub fn add(&mut self, worker: &str, feature: &str, by: f64) -> &mut Self {
        let default = default_of(CANDIDATE, feature);
        let numbers = &mut self.worker(worker).numbers;
        let number = numbers.entry(feature.to_owned()).or_insert(default);
        *number = if number.is_nan() { by } else { *number + by };
        self
    }

    /// Sets the candidate's cached tokens of the prompt, all in device memory. Also with 0, the prompt's tokens are
    /// known from then on: [`Host::matched`](crate::Host::matched) has a number for each candidate.
    pub fn holds(&mut self, worker: &str, tokens: f64) -> &mut Self {
        for feature in TIERS {
            self.set(worker, feature, tokens);
        }
        self
    }

    /// Sets a label's text for [`Host::describe`](crate::Host::describe). [`Scenario::set`] sets the number
    /// of its column.
    pub fn label(&mut self, worker: &str, key: &str, text: &str) -> &mut Self {
        self.worker(worker).labels.insert(key.to_owned(), text.to_owned());
        self
    }

    /// Sets the role of a candidate.
    pub fn role(&mut self, worker: &str, role: Role) -> &mut Self {
        let number = match role {
            Role::Mixed => 0.0,
            Role::Prefill => 1.0,
            Role::Decode => 2.0,
        };
        self.set(worker, ROLE, number)
    }

    /// Sets the candidates of the following calls, in this order.
    pub fn offer(&mut self, workers: &[&str]) -> &mut Self {
        self.offered = workers.iter().map(|name| self.id(name)).collect();
        self
    }

    /// Sets a number of the request, such as `request.prompt-tokens`.
    pub fn request(&mut self, feature: &str, value: f64) -> &mut Self {
        default_of(REQUEST, feature);
        self.numbers.insert(feature.to_owned(), value);
        self
    }

    /// Sets the prompt: its length and its keys (`prefix.key-64` and so on).
    ///
    /// Each number stands for 64 tokens. Two prompts share the prefix that their numbers share.
    pub fn prompt(&mut self, pieces: &[u64]) -> &mut Self {
        self.request("request.prompt-tokens", pieces.len() as f64 * PIECE_TOKENS);
        for (feature, key) in prefix_keys(pieces) {
            self.request(feature, key);
        }
        self
    }

    /// Sets the session's hash.
    pub fn session(&mut self, session: Option<u64>) -> &mut Self {
        self.request.session = session;
        self
    }

    /// Sets the part of the request that the following calls place.
    pub fn phase(&mut self, phase: Phase) -> &mut Self {
        self.request.phase = phase;
        self
    }

    /// Sets the number of earlier decisions for the request.
    pub fn attempt(&mut self, attempt: u32) -> &mut Self {
        self.request.attempt = attempt;
        self
    }

    /// Adds a held request that waits for that worker, with so much work there.
    pub fn hold(&mut self, worker: &str, work: u32) -> &mut Self {
        let id = self.id(worker);
        self.waiting.push((id, work));
        let queued = self.waiting.len() as f64;
        self.request("pool.queued", queued)
    }

    /// Returns the worker that the last request waits for if it is held, and its work there.
    #[must_use]
    pub fn waits_for(&self) -> Option<(&str, u32)> {
        let (row, work) = self.waits_for.get()?;
        Some((self.name(row)?, work))
    }

    /// Sets a header of the request, by its lower-case name.
    pub fn set_header(&mut self, name: &str, value: &str) -> &mut Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Sets the request's model.
    pub fn set_model(&mut self, model: &str) -> &mut Self {
        model.clone_into(&mut self.model);
        self
    }

    /// Sets the clock, in microseconds.
    pub fn clock(&mut self, now_us: u64) -> &mut Self {
        self.now_us = now_us;
        self
    }

    /// Calls the policy for the next request.
    pub fn decide<P: Policy>(&mut self, policy: &Configured<P>) -> Verdict {
        self.request.seq += 1;
        self.drawn.set(0);
        self.waits_for.set(None);
        let numbers = self.numbers(policy.plan());
        policy.schedule(self.request, &self.offered, &numbers, self)
    }

    /// Calls the policy for the next request and returns the worker's name if it routes to a single worker.
    pub fn route<P: Policy>(&mut self, policy: &Configured<P>) -> Option<&str> {
        match self.decide(policy) {
            Verdict::Route { row, .. } => self.name(row),
            _ => None,
        }
    }

    /// Calls the policy for the next request and returns the names of the prefill and decode worker if it
    /// routes to a pair.
    pub fn pair<P: Policy>(&mut self, policy: &Configured<P>) -> Option<(&str, &str)> {
        match self.decide(policy) {
            Verdict::Pair { row, prefill, .. } => Some((self.name(prefill)?, self.name(row)?)),
            _ => None,
        }
    }

    /// Delivers events to the policy or scorer, as the router does: kind, worker, number.
    ///
    /// They have the current time and belong to the last request. Kinds outside its subscription are dropped.
    pub fn deliver<P: Events>(&mut self, policy: &impl AsRef<P>, events: &[(EventKind, &str, f64)]) {
        let request = self.request;
        let wanted = events.iter().filter(|(kind, ..)| P::KINDS.contains(kind));
        let event = |(kind, worker, number): &(EventKind, &str, f64)| {
            let is_request = kind.name().starts_with("request.");
            Event {
                kind: *kind,
                at_us: self.now_us,
                seq: if is_request { request.seq } else { 0 },
                session: request.session.filter(|_| is_request),
                worker: self.id(worker),
                number: *number,
            }
        };
        let batch: Vec<Event> = wanted.map(event).collect();
        self.batch = Some(batch.iter().map(|event| event.worker).collect());
        policy.as_ref().handle(&batch, self);
        self.batch = None;
    }

    /// Runs the periodic task of the policy or scorer and returns the milliseconds until its next run.
    pub fn tick<P: Tick>(&mut self, policy: &impl AsRef<P>) -> u32 {
        self.batch = Some(Vec::new());
        let pause = policy.as_ref().tick(self);
        self.batch = None;
        pause
    }

    /// Calls a scorer for the next request and returns its scores by worker name, in row order.
    pub fn scores<S: Scorer>(&mut self, scorer: &ConfiguredScorer<S>) -> Vec<(&str, f64)> {
        self.request.seq += 1;
        self.drawn.set(0);
        let numbers = self.numbers(scorer.plan());
        let scores = scorer.score(self.request, &self.offered, &numbers, self);
        assert_eq!(scores.len(), self.offered.len(), "one score for each candidate");
        let names = (0..).map_while(|row| self.name(row));
        names.zip(scores).collect()
    }

    /// Builds the block of numbers of a plan, for benches that call [`Configured::schedule`] themselves.
    #[must_use]
    pub fn numbers(&self, plan: &Plan) -> Vec<f64> {
        let front = plan.request_features().iter();
        let front = front.map(|name| look_up(&self.numbers, REQUEST, name, |bare| self.follows(bare)));
        let rows = self.offered.iter().flat_map(|&id| {
            let worker = &self.workers[id as usize];
            let columns = plan.candidate_features().iter();
            columns.map(move |name| look_up(&worker.numbers, CANDIDATE, name, |bare| worker.follows(bare)))
        });
        front.chain(rows).collect()
    }

    /// Derives a number of the request from others that are set.
    fn follows(&self, feature: &str) -> Option<f64> {
        match feature {
            "pool.workers" => Some(self.workers.len() as f64),
            "prefix.best-tokens" => {
                let workers = self.offered.iter().map(|&id| &self.workers[id as usize]);
                let known = workers.filter_map(|worker| worker.numbers.get("prefix.any-tokens").copied());
                known.filter(|tokens| !tokens.is_nan()).reduce(f64::max)
            }
            _ => None,
        }
    }

    /// Returns the candidates' ids, in row order.
    #[must_use]
    pub fn ids(&self) -> &[WorkerId] {
        &self.offered
    }

    /// Returns the lines that the policy has logged.
    #[must_use]
    pub fn logged(&self) -> Vec<(Level, String)> {
        self.logged.borrow().clone()
    }

    /// Returns the workers that a policy may describe: the candidates, or the workers of the current batch of
    /// events.
    fn known(&self) -> &[WorkerId] {
        self.batch.as_ref().unwrap_or(&self.offered)
    }

    /// Returns the session of the current request.
    fn at_hand(&self) -> Option<u64> {
        self.request.session.filter(|_| self.batch.is_none())
    }

    fn name(&self, row: usize) -> Option<&str> {
        let id = *self.offered.get(row)?;
        Some(&self.workers[id as usize].name)
    }

    fn id(&self, name: &str) -> WorkerId {
        let id = self.workers.iter().position(|worker| worker.name == name);
        id.expect("the scenario has a worker of that name") as WorkerId
    }

    fn worker(&mut self, name: &str) -> &mut TestWorker {
        let id = self.id(name);
        &mut self.workers[id as usize]
    }

    /// Returns whether the prompt's tokens are known: a match of a candidate is set.
    fn knows_prompt(&self) -> bool {
        let known = |id: &WorkerId| {
            let numbers = &self.workers[*id as usize].numbers;
            TIERS
                .iter()
                .any(|tier| numbers.get(*tier).is_some_and(|tokens| !tokens.is_nan()))
        };
        self.offered.iter().any(known)
    }

    fn offered_numbers(&self, feature: &str) -> impl Iterator<Item = f64> {
        let plan = |id: &WorkerId| self.workers[*id as usize].numbers.get(feature).copied();
        self.offered
            .iter()
            .map(move |id| plan(id).unwrap_or(0.0).max(0.0))
    }
}

impl TestWorker {
    /// Derives a number of a candidate from others that are set.
    fn follows(&self, feature: &str) -> Option<f64> {
        let set = |name: &str| self.numbers.get(name).copied().unwrap_or(0.0);
        match feature {
            "load.queued" => Some((set("load.requests") - set("load.decoding")).max(0.0)),
            // As in the router, equal names have equal hashes.
            "worker.name-hash" => {
                let hash = self.name.bytes().fold(0, |hash, byte| mix(hash, byte.into()));
                Some((hash >> 11) as f64)
            }
            _ => None,
        }
    }
}
