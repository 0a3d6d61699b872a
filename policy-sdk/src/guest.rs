//! Glue between the generated bindings and [`Policy`], called by the expansion of [`crate::export_policy!`].

use std::sync::OnceLock;

use crate::bindings::conductor::policy as imports;
use crate::bindings::exports::conductor::policy as exports;
use crate::call::{self, WorkerId};
use crate::event::{self, Events, Tick};
use crate::host::{Host, Level, Role, StateError, Tier, WorkerInfo};
use crate::policy::{self, Configured, Policy};
use crate::verdict;

pub use crate::bindings::events::exports::conductor::policy::events::{Event, Guest as EventsExport};
pub use crate::bindings::parameters::exports::conductor::policy::parameters::{
    Guest as ParametersExport, Parameter,
};
pub use crate::bindings::schedule::exports::conductor::policy::schedule::Guest as ScheduleExport;
pub use crate::bindings::tick::exports::conductor::policy::tick::Guest as TickExport;
pub use exports::policy::{Guest as PolicyExport, Manifest, Plan};
pub use imports::types::{Candidates, Request, Verdict};
use imports::types::{Choice, Hold, Phase, Rejection};

/// Returns the policy's name and version.
#[must_use]
pub fn describe<P: Policy>() -> Manifest {
    Manifest {
        name: P::NAME.to_owned(),
        version: P::VERSION.to_owned(),
    }
}

/// Returns the policy's parameters.
#[must_use]
pub fn parameters<P: Policy>() -> Vec<Parameter> {
    exported(policy::parameters::<P>())
}

pub(crate) fn exported(parameters: Vec<crate::Parameter>) -> Vec<Parameter> {
    let bound = |bound: f64| if bound.is_finite() { bound } else { f64::NAN };
    let exported = parameters.into_iter().map(|parameter| Parameter {
        name: parameter.name,
        kind: parameter.kind.to_owned(),
        default: parameter.default,
        unit: parameter.unit.to_owned(),
        least: bound(parameter.least),
        most: bound(parameter.most),
        choices: parameter.choices,
        about: parameter.about.to_owned(),
    });
    exported.collect()
}

/// Policy of one instance, set by `configure`.
pub struct PolicyInstance<P>(OnceLock<Configured<P>>);

impl<P: Policy> PolicyInstance<P> {
    /// Creates an instance that is not configured yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "created once, in a static")]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Configures this instance.
    ///
    /// # Errors
    ///
    /// Text for the operator: mistakes in the parameters, or a second call of `configure`.
    pub fn configure(&self, params: &str) -> Result<Plan, String> {
        let configured = Configured::<P>::new(params)?;
        let plan = plan(configured.plan());
        self.0
            .set(configured)
            .map_err(|_| "this instance is configured already".to_owned())?;
        Ok(plan)
    }

    /// Decides one request; passes if the instance is not configured.
    #[must_use]
    pub fn schedule(&self, request: &Request, candidates: &Candidates) -> Verdict {
        let Some(configured) = self.0.get() else {
            return Verdict::Pass;
        };
        let request = seen(request);
        let verdict = configured.schedule(request, &candidates.ids, &candidates.numbers, &Imports);
        match verdict {
            verdict::Verdict::Route { row, score } => Verdict::Route(Choice {
                row: row as u32,
                prefill: None,
                score,
            }),
            verdict::Verdict::Pair { row, prefill, score } => Verdict::Route(Choice {
                row: row as u32,
                prefill: Some(prefill as u32),
                score,
            }),
            verdict::Verdict::Queue { order, ask_again_ms } => Verdict::Queue(Hold { order, ask_again_ms }),
            verdict::Verdict::Reject {
                status,
                retry_after_ms,
                reason,
            } => Verdict::Reject(Rejection {
                status,
                retry_after_ms,
                reason,
            }),
            verdict::Verdict::Pass => Verdict::Pass,
        }
    }
}

/// Returns the kinds of events to subscribe to.
#[must_use]
pub fn subscribe<P: Events>() -> Vec<String> {
    P::KINDS.iter().map(|kind| kind.name().to_owned()).collect()
}

/// Delivers a batch of events to a policy or scorer.
pub(crate) fn deliver<P: Events>(policy: &P, batch: &[Event]) {
    let convert = |event: &Event| {
        Some(event::Event {
            kind: *P::KINDS.get(event.kind as usize)?,
            at_us: event.at_us,
            seq: event.seq,
            session: event.session,
            worker: event.worker,
            number: event.number,
        })
    };
    let batch: Vec<_> = batch.iter().filter_map(convert).collect();
    policy.handle(&batch, &Imports);
}

/// Runs the periodic task. Returns one hour if the instance is not configured.
pub(crate) fn tick<P: Tick>(policy: Option<&P>) -> u32 {
    const HOUR_MS: u32 = 3_600_000;
    policy.map_or(HOUR_MS, |policy| policy.tick(&Imports))
}

impl<P: Policy + Events> PolicyInstance<P> {
    /// Delivers a batch of events; ignored if the instance is not configured.
    pub fn handle(&self, batch: &[Event]) {
        if let Some(configured) = self.0.get() {
            deliver(configured.policy(), batch);
        }
    }
}

impl<P: Policy + Tick> PolicyInstance<P> {
    /// Runs the periodic task. Returns one hour if the instance is not configured.
    #[must_use]
    pub fn tick(&self) -> u32 {
        tick(self.0.get().map(Configured::policy))
    }
}

pub(crate) fn plan(plan: &crate::Plan) -> Plan {
    let candidate = plan.candidate_features().iter();
    Plan {
        request_features: plan
            .request_features()
            .iter()
            .map(|&name| name.to_owned())
            .collect(),
        candidate_features: candidate.map(|name| name.clone().into_owned()).collect(),
    }
}

pub(crate) fn seen(request: &Request) -> call::Request {
    call::Request {
        seq: request.seq,
        session: request.session,
        phase: match request.phase {
            Phase::Mixed => call::Phase::Mixed,
            Phase::Prefill => call::Phase::Prefill,
            Phase::Decode => call::Phase::Decode,
        },
        attempt: request.attempt,
    }
}

/// Host functions, as imported by the component.
pub(crate) struct Imports;

impl Host for Imports {
    fn describe(&self, id: WorkerId) -> Option<WorkerInfo> {
        let about = imports::workers::describe(id)?;
        Some(WorkerInfo {
            name: about.name,
            role: match about.role {
                imports::workers::Role::Mixed => Role::Mixed,
                imports::workers::Role::Prefill => Role::Prefill,
                imports::workers::Role::Decode => Role::Decode,
            },
            labels: about.labels,
        })
    }

    fn matched(&self, tier: Tier) -> Vec<u32> {
        imports::index::matched(match tier {
            Tier::Device => imports::index::Tier::Device,
            Tier::Host => imports::index::Tier::Host,
            Tier::Disk => imports::index::Tier::Disk,
        })
    }

    fn holders(&self, tokens: u32) -> u32 {
        imports::index::holders(tokens)
    }

    fn header(&self, name: &str) -> Option<String> {
        imports::inspect::header(name)
    }

    fn model(&self) -> String {
        imports::inspect::model()
    }

    fn path(&self) -> String {
        imports::inspect::path()
    }

    fn log(&self, level: Level, message: &str) {
        let level = match level {
            Level::Debug => imports::host::Level::Debug,
            Level::Info => imports::host::Level::Info,
            Level::Warn => imports::host::Level::Warn,
            Level::Error => imports::host::Level::Error,
        };
        imports::host::log(level, message);
    }

    fn now_us(&self) -> u64 {
        imports::host::now_us()
    }

    fn random(&self) -> u64 {
        imports::host::random()
    }

    fn state(&self, key: &str) -> Option<Vec<u8>> {
        imports::state::get(key)
    }

    fn set_state(&self, key: &str, value: &[u8]) -> Result<(), StateError> {
        imports::state::set(key, value).map_err(refusal)
    }

    fn add_state(&self, key: &str, by: i64) -> Result<i64, StateError> {
        imports::state::add(key, by).map_err(refusal)
    }

    fn delete_state(&self, key: &str) {
        imports::state::delete(key);
    }

    fn recall_session(&self) -> Option<usize> {
        imports::sessions::recall().map(|row| row as usize)
    }

    fn remember_session(&self, row: usize, ttl_ms: u32) {
        imports::sessions::remember(row as u32, ttl_ms);
    }

    fn forget_session(&self) {
        imports::sessions::forget();
    }

    fn wait_for(&self, row: usize, work: u32) {
        imports::queue::wait_for(row as u32, work);
    }

    fn ahead(&self, most: &[u32]) -> Vec<u32> {
        imports::queue::ahead(most)
    }
}

fn refusal(refusal: imports::state::Refusal) -> StateError {
    match refusal {
        imports::state::Refusal::KeyTooLong => StateError::KeyTooLong,
        imports::state::Refusal::ValueTooLong => StateError::ValueTooLong,
        imports::state::Refusal::Full => StateError::Full,
        imports::state::Refusal::NotACounter => StateError::NotACounter,
    }
}
