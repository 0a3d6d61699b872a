//! One live instance of a component, and the calls into it.
//!
//! wasmtime refuses to enter an instance again after a trap, so whoever gets a [`Failure`] from here drops the
//! instance.

use std::sync::Arc;

use routing::{DecisionInput, Verdict};
use wasmtime::component::InstancePre;
use wasmtime::{AsContextMut, Store, UpdateDeadline};

use crate::bindings::{Candidates, Manifest, Plan, Scheduler, SchedulerIndices};
use crate::budget::{Budget, Meter, SETUP};
use crate::fault::Failure;
use crate::guest::{Decision, Guest};
use crate::limits::Limits;
use crate::policy_log::PolicyLog;
use crate::state::PolicyState;
use crate::tape::Tape;

/// Bytes an instance may send to an import, or answer, in one call. Far above every limit of the WIT, so that
/// the refusals it promises are given; what is longer traps before the host has allocated it.
const SENT_BYTES: usize = 1 << 20;
/// Ticks of the epoch until the meter is looked at.
const TICK: u64 = 1;

/// Everything needed to make an instance of a compiled and linked component.
pub(crate) struct Blueprint {
    pub(crate) component: InstancePre<Guest>,
    pub(crate) exports: SchedulerIndices,
    pub(crate) memory_bytes: usize,
    pub(crate) log: Arc<PolicyLog>,
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
    exports: Scheduler,
    /// The ids of the candidates as plain numbers; kept for its capacity.
    ids: Vec<u32>,
}

impl Blueprint {
    /// A fresh instance, not yet configured, that remembers in `state`.
    pub(crate) fn instantiate(&self, state: Arc<PolicyState>) -> Result<Instance, Stillborn> {
        let guest = Guest {
            log: Arc::clone(&self.log),
            state,
            limits: Limits::new(self.memory_bytes),
            meter: Meter::new(SETUP),
            decision: None,
            tape: None,
        };
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
        let answer = self
            .exports
            .conductor_policy_policy()
            .call_describe(&mut self.store);
        self.end_call(answer)
    }

    /// Hands over the parameters; the inner error is the policy's own text.
    pub(crate) fn configure(&mut self, params: &str) -> Result<Result<Plan, String>, Failure> {
        self.begin_call(SETUP, None);
        let answer = self
            .exports
            .conductor_policy_policy()
            .call_configure(&mut self.store, params);
        self.end_call(answer)
    }

    /// Decides one request, beside a tape where there is one; it is lent for the call.
    pub(crate) fn decide_on(
        &mut self,
        tape: &mut Option<Box<Tape>>,
        input: &DecisionInput<'_>,
        budget: Budget,
    ) -> Result<Verdict, Failure> {
        if tape.is_none() {
            return self.decide(input, budget);
        }
        self.store.data_mut().tape = tape.take();
        let verdict = self.decide(input, budget);
        *tape = self.store.data_mut().tape.take();
        verdict
    }

    /// Decides one request.
    pub(crate) fn decide(&mut self, input: &DecisionInput<'_>, budget: Budget) -> Result<Verdict, Failure> {
        self.ids.clear();
        self.ids.extend(input.ids.iter().map(|id| id.0));
        self.begin_call(budget, Some(Decision::of(input)));
        let candidates = Candidates {
            ids: &self.ids,
            numbers: input.numbers,
        };
        let answer = self.exports.conductor_policy_schedule().call_schedule(
            &mut self.store,
            input.request.into(),
            candidates,
        );
        self.end_call(answer).map(Verdict::from)
    }

    fn begin_call(&mut self, budget: Budget, decision: Option<Decision>) {
        self.store.data_mut().begin_call(budget, decision);
        self.store.set_epoch_deadline(TICK);
    }

    fn end_call<T>(&mut self, answer: wasmtime::Result<T>) -> Result<T, Failure> {
        let guest = self.store.data_mut();
        // The queries belong to the request: they must not live as long as the instance.
        guest.decision = None;
        answer.map_err(|error| Failure::of_call(&error, guest.limits.refused()))
    }
}
