//! A loaded policy: decisions on warm instances, a fresh one after every fault.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use routing::{
    DecisionInput, EventListener, FaultKind, FeaturePlan, Origin, Policy, PolicyFault, Scorer, Transcript,
    Verdict,
};

use crate::bindings::Plan;
use crate::budget::Budget;
use crate::fault::Failure;
use crate::instance::{Blueprint, Instance, Stillborn};
use crate::listener::Listener;
use crate::slots::{Occupant, Slots};
use crate::state::PolicyState;
use crate::stats::{Counters, PolicyStats};
use crate::tape::{Divergence, Tape};

/// Who a policy says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// What it calls itself; cut at 256 bytes.
    pub name: String,
    /// Its version, in any scheme; cut at 256 bytes.
    pub version: String,
}

/// What was measured while loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadReport {
    /// Real time of compiling and linking.
    pub compiled_in: Duration,
    /// Real time of instantiating and configuring: what a fault costs the next call.
    pub instantiated_in: Duration,
    /// Real time of one decision over 256 made-up candidates. Over some 100 us a policy holds up the thread it
    /// runs on, with every request there.
    pub decided_256_in: Duration,
}

/// A policy made from a component. Calls from any number of threads.
pub struct WasmPolicy {
    pub(crate) name: Arc<str>,
    pub(crate) manifest: Manifest,
    pub(crate) origin: Arc<Origin>,
    pub(crate) report: LoadReport,
    pub(crate) features: FeaturePlan,
    pub(crate) maker: Arc<InstanceMaker>,
    /// Where it wants to be told events, or ticks.
    pub(crate) listener: Option<Arc<Listener>>,
    pub(crate) budget: Budget,
    pub(crate) slots: Slots,
    pub(crate) counters: Counters,
}

/// Makes configured instances that all have one plan.
pub(crate) struct InstanceMaker {
    pub(crate) blueprint: Blueprint,
    pub(crate) state: Arc<PolicyState>,
    pub(crate) params: String,
    pub(crate) plan: Plan,
}

impl WasmPolicy {
    /// Who it says it is.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// SHA-256 of the component's bytes, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.origin.sha256
    }

    /// What was measured while loading.
    #[must_use]
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> PolicyStats {
        let log = &self.maker.blueprint.log;
        self.counters.read(self.slots.asked(), log.dropped())
    }

    /// Decides again what was decided before, with the answers that were given then, and whatever it remembers left alone. The
    /// same component with the same `params` gives the same verdict, bit for bit, or the same fault; but a fault of
    /// time ([`FaultKind::Deadline`]) need not come again.
    ///
    /// # Errors
    /// [`Divergence`] where it does not ask what was asked then, which the same component never does unless its
    /// globals keep something.
    pub fn decide_replaying(
        &self,
        input: &DecisionInput<'_>,
        transcript: &Transcript,
    ) -> Result<Result<Verdict, PolicyFault>, Divergence> {
        self.replaying(transcript, |tape| self.decide_on(tape, input))
    }

    /// Scores again what was scored before, as [`WasmPolicy::decide_replaying`] decides.
    ///
    /// # Errors
    /// As there.
    pub fn score_replaying(
        &self,
        input: &DecisionInput<'_>,
        transcript: &Transcript,
    ) -> Result<Result<Vec<f64>, PolicyFault>, Divergence> {
        self.replaying(transcript, |tape| self.score_on(tape, input))
    }

    fn replaying<T>(
        &self,
        transcript: &Transcript,
        call: impl FnOnce(&mut Option<Box<Tape>>) -> Result<T, PolicyFault>,
    ) -> Result<Result<T, PolicyFault>, Divergence> {
        let mut tape = Some(Box::new(Tape::replaying(transcript)));
        let answer = call(&mut tape);
        // Ended in the middle for want of time, it is no other decision.
        let is_cut = matches!(&answer, Err(fault) if matches!(fault.kind, FaultKind::Deadline | FaultKind::NoInstance));
        if let Some(Tape::Replaying(replay)) = tape.map(|tape| *tape)
            && !is_cut
        {
            replay.finish()?;
        }
        Ok(answer)
    }

    fn decide_on(
        &self,
        tape: &mut Option<Box<Tape>>,
        input: &DecisionInput<'_>,
    ) -> Result<Verdict, PolicyFault> {
        self.call(|instance| instance.beside(tape, |instance| instance.decide(input, self.budget)))
    }

    fn score_on(
        &self,
        tape: &mut Option<Box<Tape>>,
        input: &DecisionInput<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.call(|instance| instance.beside(tape, |instance| instance.score(input, self.budget)))
    }

    /// Makes a call on an instance that nobody else uses.
    fn call<T>(&self, call: impl FnOnce(&mut Instance) -> Result<T, Failure>) -> Result<T, PolicyFault> {
        let answer = match self.slots.claim() {
            Some(mut slot) => self.call_in(&mut slot, call),
            None => Err(Failure::no_instance(format!(
                "all {} instances are in use",
                self.slots.count()
            ))),
        };
        answer.map_err(|failure| self.fault(failure))
    }

    fn call_in<T>(
        &self,
        slot: &mut Occupant,
        call: impl FnOnce(&mut Instance) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut instance = match slot.take() {
            Some(warm) => warm,
            None => {
                let fresh = self.maker.make()?;
                self.counters.count_instance();
                Box::new(fresh)
            }
        };
        // On a failure the instance is dropped here: it cannot be entered again.
        let answer = call(&mut instance)?;
        *slot = Some(instance);
        Ok(answer)
    }

    #[cold]
    fn fault(&self, failure: Failure) -> PolicyFault {
        self.counters.count_fault(failure.kind);
        PolicyFault {
            policy: Arc::clone(&self.name),
            kind: failure.kind,
            detail: failure.detail,
        }
    }
}

impl Policy for WasmPolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn plan(&self) -> &FeaturePlan {
        &self.features
    }

    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        self.decide_on(&mut None, input)
    }

    fn decide_noting(&self, input: &DecisionInput<'_>) -> (Result<Verdict, PolicyFault>, Transcript) {
        let mut tape = Some(Box::new(Tape::noting()));
        let verdict = self.decide_on(&mut tape, input);
        (verdict, Tape::noted(tape))
    }

    fn origin(&self) -> Option<&Arc<Origin>> {
        Some(&self.origin)
    }

    fn scorer(&self) -> Option<&dyn Scorer> {
        let exports = &self.maker.blueprint.exports;
        exports.has_score().then_some(self as _)
    }

    fn listeners(&self) -> Vec<Arc<dyn EventListener>> {
        let listener = self.listener.iter();
        listener.map(|listener| Arc::clone(listener) as _).collect()
    }
}

impl Scorer for WasmPolicy {
    fn score(&self, input: &DecisionInput<'_>, scores: &mut [f64]) -> Result<(), PolicyFault> {
        scores.copy_from_slice(&self.score_on(&mut None, input)?);
        Ok(())
    }

    fn score_noting(
        &self,
        input: &DecisionInput<'_>,
        scores: &mut [f64],
    ) -> (Result<(), PolicyFault>, Transcript) {
        let mut tape = Some(Box::new(Tape::noting()));
        let answer = self.score_on(&mut tape, input);
        let answer = answer.map(|given| scores.copy_from_slice(&given));
        (answer, Tape::noted(tape))
    }
}

impl InstanceMaker {
    /// A configured instance.
    pub(crate) fn make(&self) -> Result<Instance, Failure> {
        let state = Arc::clone(&self.state);
        let mut instance = self
            .blueprint
            .instantiate(state)
            .map_err(|stillborn| match stillborn {
                Stillborn::Instantiate(failure) => failure,
                Stillborn::Types(error) => Failure::no_instance(error.to_string()),
            })?;
        match instance.configure(&self.params)? {
            Ok(plan) if self.promised(&plan) => Ok(instance),
            Ok(_) => Err(Failure::no_instance(
                "a fresh instance asks for other features under the same `params`",
            )),
            Err(message) => Err(Failure {
                kind: FaultKind::NoInstance,
                detail: format!("a fresh instance refuses `params`: {message}"),
            }),
        }
    }

    /// Whether a plan is the one the router lays out.
    pub(crate) fn promised(&self, plan: &Plan) -> bool {
        plan.request_features == self.plan.request_features
            && plan.candidate_features == self.plan.candidate_features
    }
}

impl fmt::Debug for WasmPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmPolicy")
            .field("name", &self.name)
            .field("manifest", &self.manifest)
            .field("sha256", &self.origin.sha256)
            .finish_non_exhaustive()
    }
}
