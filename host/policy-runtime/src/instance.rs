//! Instance of a component, and the calls into it.
//!
//! wasmtime refuses to enter an instance after a trap, so callers drop the instance after a [`Failure`].

use std::sync::Arc;

use routing::{DecisionInput, Hold, Verdict};
use wasmtime::component::InstancePre;
use wasmtime::{AsContextMut, Store, UpdateDeadline};

use crate::bindings::events::Event;
use crate::bindings::{Candidates, Manifest, Plan, parameters};
use crate::budget::{CallBudget, CallMeter, SETUP};
use crate::exports::{ExportIndices, Exports};
use crate::fault::Failure;
use crate::guest::{DecisionData, GuestState};
use crate::limits::InstanceLimits;
use crate::policy_log::PolicyLog;
use crate::recorder::HostCallRecorder;
use crate::scoring;
use crate::state::PolicyState;
use crate::ticker::{CallGuard, EpochTicker};

/// Bytes an instance may pass to an import, or return, in one call. Far above every limit of the WIT, so that the
/// documented refusals are given. Anything longer traps before the host allocates memory for it.
const SENT_BYTES: usize = 1 << 20;
/// Epoch ticks between checks of the meter.
const TICK: u64 = 1;

/// Parts needed to instantiate a compiled and linked component.
pub(crate) struct ComponentBlueprint {
    pub(crate) component: InstancePre<GuestState>,
    pub(crate) exports: Arc<ExportIndices>,
    pub(crate) memory_bytes: usize,
    pub(crate) log: Arc<PolicyLog>,
    pub(crate) ticker: Arc<EpochTicker>,
}

impl ComponentBlueprint {
    /// Returns the same blueprint with a log of its own.
    pub(crate) fn with_log(&self, log: PolicyLog) -> Self {
        Self {
            component: self.component.clone(),
            exports: Arc::clone(&self.exports),
            memory_bytes: self.memory_bytes,
            log: Arc::new(log),
            ticker: Arc::clone(&self.ticker),
        }
    }
}

/// Error of creating an instance.
pub(crate) enum InstantiateError {
    /// The instantiation failed: limits, or its start function.
    Instantiate(Failure),
    /// The types of its exports differ from the contract's.
    Types(wasmtime::Error),
}

/// A callable instance, for one thread at a time.
pub(crate) struct Instance {
    pub(crate) store: Store<GuestState>,
    exports: Exports,
    /// Ids of the candidates as plain numbers; kept for its capacity.
    ids: Vec<u32>,
}

impl ComponentBlueprint {
    /// Creates an instance over `state`, not yet configured.
    pub(crate) fn instantiate(&self, state: Arc<PolicyState>) -> Result<Instance, InstantiateError> {
        let mut guest = GuestState {
            log: Arc::clone(&self.log),
            state,
            limits: InstanceLimits::new(self.memory_bytes),
            meter: CallMeter::new(SETUP),
            decision: None,
            recorder: None,
            watch: CallGuard::new(&self.ticker),
        };
        guest.watch.begin();
        let mut store = Store::new(self.component.engine(), guest);
        store.limiter(|guest| &mut guest.limits);
        store.set_hostcall_fuel(SENT_BYTES);
        store.epoch_deadline_callback(|mut store| {
            store.data_mut().meter.tick()?;
            Ok(UpdateDeadline::Continue(TICK))
        });
        store.set_epoch_deadline(TICK);
        let instance = self.component.instantiate(&mut store).map_err(|error| {
            let refused = store.data().limits.refused();
            InstantiateError::Instantiate(Failure::no_instance(Failure::of_call(&error, refused).detail))
        })?;
        let exports = self
            .exports
            .load(store.as_context_mut(), &instance)
            .map_err(InstantiateError::Types)?;
        store.data_mut().watch.end();
        Ok(Instance {
            store,
            exports,
            ids: Vec::new(),
        })
    }
}

impl Instance {
    /// Calls `describe`.
    pub(crate) fn describe(&mut self) -> Result<Manifest, Failure> {
        begin_call(&mut self.store, SETUP, None);
        let answer = self.exports.policy.call_describe(&mut self.store);
        self.end_call(answer)
    }

    /// Calls `parameters`; `None` if the policy does not export it.
    pub(crate) fn parameters(&mut self) -> Result<Option<Vec<parameters::Parameter>>, Failure> {
        let Some(parameters) = &self.exports.parameters else {
            return Ok(None);
        };
        begin_call(&mut self.store, SETUP, None);
        let answer = parameters.call_parameters(&mut self.store);
        self.end_call(answer).map(Some)
    }

    /// Calls `configure` with the parameters. The inner error is the policy's own text.
    pub(crate) fn configure(&mut self, params: &str) -> Result<Result<Plan, String>, Failure> {
        begin_call(&mut self.store, SETUP, None);
        let answer = self.exports.policy.call_configure(&mut self.store, params);
        self.end_call(answer)
    }

    /// Makes a call with a recorder, if there is one.
    pub(crate) fn with_recorder<T>(
        &mut self,
        recorder: &mut Option<Box<HostCallRecorder>>,
        call: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if recorder.is_none() {
            return call(self);
        }
        self.store.data_mut().recorder = recorder.take();
        let answer = call(self);
        *recorder = self.store.data_mut().recorder.take();
        answer
    }

    /// Decides one request. A scorer decides for the candidate with the highest score.
    pub(crate) fn decide(
        &mut self,
        input: &DecisionInput<'_>,
        budget: CallBudget,
    ) -> Result<Verdict, Failure> {
        let Some(schedule) = &self.exports.schedule else {
            return Ok(scoring::best(input, &self.score(input, budget)?));
        };
        begin(&mut self.store, &mut self.ids, input, budget);
        let candidates = Candidates {
            ids: &self.ids,
            numbers: input.numbers,
        };
        let answer = schedule.call_schedule(&mut self.store, input.request.into(), candidates);
        let decision = self.store.data().decision.as_ref();
        let waits_for = decision.and_then(|decision| decision.waits_for);
        Ok(match Verdict::from(self.end_call(answer)?) {
            Verdict::Queue(hold) => Verdict::Queue(Hold { waits_for, ..hold }),
            verdict => verdict,
        })
    }

    /// Calls `subscribe`; `None` if the policy subscribes to no events.
    pub(crate) fn subscribe(&mut self) -> Result<Option<Vec<String>>, Failure> {
        let Some(events) = &self.exports.events else {
            return Ok(None);
        };
        begin_call(&mut self.store, SETUP, None);
        let answer = events.call_subscribe(&mut self.store);
        self.end_call(answer).map(Some)
    }

    /// Delivers some events.
    pub(crate) fn handle(
        &mut self,
        batch: &[Event],
        about: DecisionData,
        budget: CallBudget,
    ) -> Result<(), Failure> {
        let Some(events) = &self.exports.events else {
            return Err(Failure::no_instance("it exports no `events`"));
        };
        begin_call(&mut self.store, budget, Some(about));
        let answer = events.call_handle(&mut self.store, batch);
        self.end_call(answer)
    }

    /// Returns `true` if the policy has a timer.
    pub(crate) fn has_tick(&self) -> bool {
        self.exports.tick.is_some()
    }

    /// Calls the timer. Returns the milliseconds until the next call.
    pub(crate) fn tick(&mut self, about: DecisionData, budget: CallBudget) -> Result<u32, Failure> {
        let Some(tick) = &self.exports.tick else {
            return Err(Failure::no_instance("it exports no `tick`"));
        };
        begin_call(&mut self.store, budget, Some(about));
        let answer = tick.call_tick(&mut self.store);
        self.end_call(answer)
    }

    /// Returns `true` if the policy decides and is a scorer too.
    pub(crate) fn decides_and_scores(&self) -> bool {
        self.exports.schedule.is_some() && self.exports.score.is_some()
    }

    /// Returns one score per candidate, in row order.
    pub(crate) fn score(
        &mut self,
        input: &DecisionInput<'_>,
        budget: CallBudget,
    ) -> Result<Vec<f64>, Failure> {
        let Some(score) = &self.exports.score else {
            return Err(Failure::no_instance("it exports no `score`"));
        };
        begin(&mut self.store, &mut self.ids, input, budget);
        let candidates = Candidates {
            ids: &self.ids,
            numbers: input.numbers,
        };
        let answer = score.call_score(&mut self.store, input.request.into(), candidates);
        let scores = self.end_call(answer)?;
        scoring::check(&scores, input)?;
        Ok(scores)
    }

    fn end_call<T>(&mut self, answer: wasmtime::Result<T>) -> Result<T, Failure> {
        let guest = self.store.data_mut();
        // The queries belong to the request and must not outlive it.
        guest.decision = None;
        guest.watch.end();
        answer.map_err(|error| Failure::of_call(&error, guest.limits.refused()))
    }
}

/// Begins a call over candidates.
fn begin(store: &mut Store<GuestState>, ids: &mut Vec<u32>, input: &DecisionInput<'_>, budget: CallBudget) {
    ids.clear();
    ids.extend(input.ids.iter().map(|id| id.0));
    begin_call(store, budget, Some(DecisionData::of(input)));
}

fn begin_call(store: &mut Store<GuestState>, budget: CallBudget, decision: Option<DecisionData>) {
    store.data_mut().begin_call(budget, decision);
    store.set_epoch_deadline(TICK);
}
