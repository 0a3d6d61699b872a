//! One live instance of a component, and the calls into it.
//!
//! wasmtime refuses to enter an instance again after a trap, so whoever gets a [`Failure`] from here drops the
//! instance.

use std::sync::Arc;

use routing::{DecisionInput, Hold, Verdict};
use wasmtime::component::InstancePre;
use wasmtime::{AsContextMut, Store, UpdateDeadline};

use crate::bindings::events::Event;
use crate::bindings::{Candidates, Manifest, Plan, parameters};
use crate::budget::{Budget, Meter, SETUP};
use crate::exports::{ExportIndices, Exports};
use crate::fault::Failure;
use crate::guest::{Decision, Guest};
use crate::limits::Limits;
use crate::policy_log::PolicyLog;
use crate::scoring;
use crate::state::PolicyState;
use crate::tape::Tape;
use crate::ticker::{Ticker, Watch};

/// Bytes an instance may send to an import, or answer, in one call. Far above every limit of the WIT, so that
/// the refusals it promises are given; what is longer traps before the host has allocated it.
const SENT_BYTES: usize = 1 << 20;
/// Ticks of the epoch until the meter is looked at.
const TICK: u64 = 1;

/// Everything needed to make an instance of a compiled and linked component.
pub(crate) struct Blueprint {
    pub(crate) component: InstancePre<Guest>,
    pub(crate) exports: ExportIndices,
    pub(crate) memory_bytes: usize,
    pub(crate) log: Arc<PolicyLog>,
    pub(crate) ticker: Arc<Ticker>,
}

/// Why an instance could not be made.
pub(crate) enum Stillborn {
    /// It could not be instantiated: limits, or its own start function.
    Instantiate(Failure),
    /// Its exports have other types than the contract's.
    Types(wasmtime::Error),
}

/// An instance that can be called, by one thread at a time.
pub(crate) struct Instance {
    pub(crate) store: Store<Guest>,
    exports: Exports,
    /// The ids of the candidates as plain numbers; kept for its capacity.
    ids: Vec<u32>,
}

impl Blueprint {
    /// A fresh instance, not yet configured, that remembers in `state`.
    pub(crate) fn instantiate(&self, state: Arc<PolicyState>) -> Result<Instance, Stillborn> {
        let mut guest = Guest {
            log: Arc::clone(&self.log),
            state,
            limits: Limits::new(self.memory_bytes),
            meter: Meter::new(SETUP),
            decision: None,
            tape: None,
            watch: Watch::new(&self.ticker),
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
            Stillborn::Instantiate(Failure::no_instance(Failure::of_call(&error, refused).detail))
        })?;
        let exports = self
            .exports
            .load(store.as_context_mut(), &instance)
            .map_err(Stillborn::Types)?;
        store.data_mut().watch.end();
        Ok(Instance {
            store,
            exports,
            ids: Vec::new(),
        })
    }
}

impl Instance {
    /// What the policy calls itself.
    pub(crate) fn describe(&mut self) -> Result<Manifest, Failure> {
        self.begin_call(SETUP, None);
        let answer = self.exports.policy.call_describe(&mut self.store);
        self.end_call(answer)
    }

    /// What the policy says its parameters are; none where it says nothing.
    pub(crate) fn parameters(&mut self) -> Result<Option<Vec<parameters::Parameter>>, Failure> {
        let Some(parameters) = &self.exports.parameters else {
            return Ok(None);
        };
        begin_call(&mut self.store, SETUP, None);
        let answer = parameters.call_parameters(&mut self.store);
        self.end_call(answer).map(Some)
    }

    /// Hands over the parameters; the inner error is the policy's own text.
    pub(crate) fn configure(&mut self, params: &str) -> Result<Result<Plan, String>, Failure> {
        self.begin_call(SETUP, None);
        let answer = self.exports.policy.call_configure(&mut self.store, params);
        self.end_call(answer)
    }

    /// Makes a call beside a tape, where there is one; it is lent for the call.
    pub(crate) fn beside<T>(
        &mut self,
        tape: &mut Option<Box<Tape>>,
        call: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if tape.is_none() {
            return call(self);
        }
        self.store.data_mut().tape = tape.take();
        let answer = call(self);
        *tape = self.store.data_mut().tape.take();
        answer
    }

    /// Decides one request; a scorer, for the candidate with the highest score.
    pub(crate) fn decide(&mut self, input: &DecisionInput<'_>, budget: Budget) -> Result<Verdict, Failure> {
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

    /// The kinds of events that it wants; none where it wants to be told none.
    pub(crate) fn subscribe(&mut self) -> Result<Option<Vec<String>>, Failure> {
        let Some(events) = &self.exports.events else {
            return Ok(None);
        };
        begin_call(&mut self.store, SETUP, None);
        let answer = events.call_subscribe(&mut self.store);
        self.end_call(answer).map(Some)
    }

    /// Tells it some events.
    pub(crate) fn handle(&mut self, batch: &[Event], about: Decision, budget: Budget) -> Result<(), Failure> {
        let Some(events) = &self.exports.events else {
            return Err(Failure::no_instance("it exports no `events`"));
        };
        begin_call(&mut self.store, budget, Some(about));
        let answer = events.call_handle(&mut self.store, batch);
        self.end_call(answer)
    }

    /// Whether it works by the clock.
    pub(crate) fn has_tick(&self) -> bool {
        self.exports.tick.is_some()
    }

    /// Has it work by the clock; milliseconds until it wants to do so again.
    pub(crate) fn tick(&mut self, about: Decision, budget: Budget) -> Result<u32, Failure> {
        let Some(tick) = &self.exports.tick else {
            return Err(Failure::no_instance("it exports no `tick`"));
        };
        begin_call(&mut self.store, budget, Some(about));
        let answer = tick.call_tick(&mut self.store);
        self.end_call(answer)
    }

    /// Whether it decides by itself and is a scorer too.
    pub(crate) fn does_both(&self) -> bool {
        self.exports.schedule.is_some() && self.exports.score.is_some()
    }

    /// One number a candidate, in row order.
    pub(crate) fn score(&mut self, input: &DecisionInput<'_>, budget: Budget) -> Result<Vec<f64>, Failure> {
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

    fn begin_call(&mut self, budget: Budget, decision: Option<Decision>) {
        begin_call(&mut self.store, budget, decision);
    }

    fn end_call<T>(&mut self, answer: wasmtime::Result<T>) -> Result<T, Failure> {
        let guest = self.store.data_mut();
        // The queries belong to the request: they must not live as long as the instance.
        guest.decision = None;
        guest.watch.end();
        answer.map_err(|error| Failure::of_call(&error, guest.limits.refused()))
    }
}

/// Begins a call over candidates.
fn begin(store: &mut Store<Guest>, ids: &mut Vec<u32>, input: &DecisionInput<'_>, budget: Budget) {
    ids.clear();
    ids.extend(input.ids.iter().map(|id| id.0));
    begin_call(store, budget, Some(Decision::of(input)));
}

fn begin_call(store: &mut Store<Guest>, budget: Budget, decision: Option<Decision>) {
    store.data_mut().begin_call(budget, decision);
    store.set_epoch_deadline(TICK);
}
