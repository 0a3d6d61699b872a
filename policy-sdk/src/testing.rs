//! Drives a policy natively: a made-up fleet that answers as the router would, for tests and benches.
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

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::call::{Phase, Request, WorkerId};
use crate::host::{Level, Role};
use crate::plan::Plan;
use crate::policy::{Configured, Policy};
use crate::verdict::Verdict;

/// The column of [`Plan::roles`].
const ROLE: &str = "worker.role";

/// The request's numbers and what they are unless set.
const REQUEST: &[(&str, f64)] = &[
    ("request.prompt-tokens", f64::NAN),
    ("request.max-tokens", f64::NAN),
    ("request.body-bytes", 0.0),
    ("request.priority", f64::NAN),
    ("request.stream", 0.0),
    ("request.waited-ms", 0.0),
    // As `pd.alone` is unless a pool turns it off.
    ("request.decode-alone", 1.0),
];

/// A candidate's numbers and what they are unless set; `label.KEY` is NaN.
const CANDIDATE: &[(&str, f64)] = &[
    ("worker.weight", 1.0),
    (ROLE, 0.0),
    ("load.requests", 0.0),
    ("load.prefill-tokens", 0.0),
    ("load.decoding", 0.0),
    ("load.prompt-tokens", 0.0),
    ("ttft.ewma-ms", f64::NAN),
    ("prefix.device-tokens", f64::NAN),
    ("prefix.host-tokens", f64::NAN),
    ("prefix.any-tokens", f64::NAN),
    ("cache.blocks", f64::NAN),
    ("cost.prefill-ms", f64::NAN),
    ("cost.token-ms", f64::NAN),
    ("cost.transfer-ms", f64::NAN),
    ("cost.tbt-ms", f64::NAN),
];

/// A fleet and a request, changed between calls as a test needs. Counts requests by itself and keeps the
/// policy's state over calls. A misspelt name panics, for a test that asks the wrong thing proves nothing.
#[derive(Debug)]
pub struct Scenario {
    workers: Vec<Worker>,
    offered: Vec<WorkerId>,
    numbers: BTreeMap<String, f64>,
    headers: BTreeMap<String, String>,
    model: String,
    request: Request,
    now_us: u64,
    state: RefCell<BTreeMap<String, Vec<u8>>>,
    logged: RefCell<Vec<(Level, String)>>,
    drawn: Cell<u64>,
}

#[derive(Debug)]
struct Worker {
    name: String,
    labels: BTreeMap<String, String>,
    numbers: BTreeMap<String, f64>,
}

impl Scenario {
    /// Idle mixed workers of weight 1 with unknown caches, all of them candidates; a request of which nothing is known.
    #[must_use]
    pub fn new<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        let worker = |name: N| Worker {
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
            logged: RefCell::default(),
            drawn: Cell::default(),
        }
    }

    /// Sets a candidate's number, such as `load.requests`.
    pub fn set(&mut self, worker: &str, feature: &str, value: f64) -> &mut Self {
        default_of(CANDIDATE, feature);
        self.worker(worker).numbers.insert(feature.to_owned(), value);
        self
    }

    /// Adds to a candidate's number; one that is unknown starts at 0.
    pub fn add(&mut self, worker: &str, feature: &str, by: f64) -> &mut Self {
        let default = default_of(CANDIDATE, feature);
        let numbers = &mut self.worker(worker).numbers;
        let number = numbers.entry(feature.to_owned()).or_insert(default);
        *number = if number.is_nan() { by } else { *number + by };
        self
    }

    /// Sets how much of the prompt a candidate holds, in tokens, all in device memory.
    pub fn holds(&mut self, worker: &str, tokens: f64) -> &mut Self {
        for feature in ["prefix.device-tokens", "prefix.host-tokens", "prefix.any-tokens"] {
            self.set(worker, feature, tokens);
        }
        self
    }

    /// Sets a label's text, for [`Host::describe`](crate::Host::describe). Its column is a number of its own: [`Scenario::set`].
    pub fn label(&mut self, worker: &str, key: &str, text: &str) -> &mut Self {
        self.worker(worker).labels.insert(key.to_owned(), text.to_owned());
        self
    }

    /// Sets what a candidate does.
    pub fn role(&mut self, worker: &str, role: Role) -> &mut Self {
        let number = match role {
            Role::Mixed => 0.0,
            Role::Prefill => 1.0,
            Role::Decode => 2.0,
        };
        self.set(worker, ROLE, number)
    }

    /// Makes these, in this order, the candidates of the calls to come.
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

    /// Sets the session's hash.
    pub fn session(&mut self, session: Option<u64>) -> &mut Self {
        self.request.session = session;
        self
    }

    /// Sets which part of the request is placed by the calls to come.
    pub fn phase(&mut self, phase: Phase) -> &mut Self {
        self.request.phase = phase;
        self
    }

    /// Sets how often the request has been decided before.
    pub fn attempt(&mut self, attempt: u32) -> &mut Self {
        self.request.attempt = attempt;
        self
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

    /// Asks the policy about the next request.
    pub fn decide<P: Policy>(&mut self, policy: &Configured<P>) -> Verdict {
        self.request.seq += 1;
        self.drawn.set(0);
        let numbers = self.numbers(policy.plan());
        policy.schedule(self.request, &self.offered, &numbers, self)
    }

    /// Asks the policy about the next request and names the worker it routes to, if it routes to one alone.
    pub fn route<P: Policy>(&mut self, policy: &Configured<P>) -> Option<&str> {
        match self.decide(policy) {
            Verdict::Route { row, .. } => self.name(row),
            _ => None,
        }
    }

    /// Asks the policy about the next request and names the prefill and the decode worker, if it routes to a pair.
    pub fn pair<P: Policy>(&mut self, policy: &Configured<P>) -> Option<(&str, &str)> {
        match self.decide(policy) {
            Verdict::Pair { row, prefill, .. } => Some((self.name(prefill)?, self.name(row)?)),
            _ => None,
        }
    }

    /// The block of numbers a plan asks for, for benches that call [`Configured::schedule`] themselves.
    #[must_use]
    pub fn numbers(&self, plan: &Plan) -> Vec<f64> {
        let look_up = |numbers: &BTreeMap<String, f64>, defaults, name: &str| {
            let bare = name.trim_end_matches('?');
            numbers.get(bare).copied().unwrap_or_else(|| {
                if bare.len() < name.len() {
                    f64::NAN
                } else {
                    default_of(defaults, bare)
                }
            })
        };
        let front = plan.request_features().iter();
        let front = front.map(|name| look_up(&self.numbers, REQUEST, name));
        let rows = self.offered.iter().flat_map(|&id| {
            let numbers = &self.workers[id as usize].numbers;
            let columns = plan.candidate_features().iter();
            columns.map(move |name| look_up(numbers, CANDIDATE, name))
        });
        front.chain(rows).collect()
    }

    /// The candidates' ids, in row order.
    #[must_use]
    pub fn ids(&self) -> &[WorkerId] {
        &self.offered
    }

    /// What the policy has logged so far.
    #[must_use]
    pub fn logged(&self) -> Vec<(Level, String)> {
        self.logged.borrow().clone()
    }

    fn name(&self, row: usize) -> Option<&str> {
        let id = *self.offered.get(row)?;
        Some(&self.workers[id as usize].name)
    }

    fn id(&self, name: &str) -> WorkerId {
        let id = self.workers.iter().position(|worker| worker.name == name);
        id.expect("the scenario has a worker of that name") as WorkerId
    }

    fn worker(&mut self, name: &str) -> &mut Worker {
        let id = self.id(name);
        &mut self.workers[id as usize]
    }

    fn offered_numbers(&self, feature: &str) -> impl Iterator<Item = f64> {
        let plan = |id: &WorkerId| self.workers[*id as usize].numbers.get(feature).copied();
        self.offered
            .iter()
            .map(move |id| plan(id).unwrap_or(0.0).max(0.0))
    }
}

/// Panics for a name that is neither in the table nor a label's.
fn default_of(defaults: &[(&str, f64)], feature: &str) -> f64 {
    if feature.starts_with("label.") {
        return f64::NAN;
    }
    let known = defaults.iter().find(|(name, _)| *name == feature);
    assert!(known.is_some(), "unknown feature `{feature}`");
    known.map_or(f64::NAN, |(_, default)| *default)
}
