//! Loaded policy: decisions on warm instances, and a new one after every fault.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use routing::{
    DecisionInput, EventListener, FaultKind, FeaturePlan, Origin, Policy, PolicyDescription, PolicyFault,
    Scorer, Transcript, Verdict,
};

use crate::bindings::Plan;
use crate::budget::CallBudget;
use crate::fault::Failure;
use crate::instance::{ComponentBlueprint, Instance, InstantiateError};
use crate::listener::ListenerInstance;
use crate::policy_log::PolicyLog;
use crate::recorder::{Divergence, HostCallRecorder};
use crate::slots::{InstancePool, PooledInstance};
use crate::state::PolicyState;
use crate::stats::{PolicyCounters, PolicyStats};

/// Time of a call apart from the requests.
const PATIENCE: Duration = Duration::from_secs(2);

/// A policy's name and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Name; truncated at 256 bytes.
    pub name: String,
    /// Version, in any scheme; truncated at 256 bytes.
    pub version: String,
}

/// Measurements of loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadReport {
    /// Real time of compiling and linking.
    pub compiled_in: Duration,
    /// Real time of instantiating and configuring: the cost of a fault for the next call.
    pub instantiated_in: Duration,
    /// Real time of one decision over 256 synthetic candidates. Above about 100 us a policy delays its thread and all
    /// requests there.
    pub decided_256_in: Duration,
}

/// A policy from a component, callable from any number of threads.
pub struct WasmPolicy {
    pub(crate) name: Arc<str>,
    pub(crate) manifest: Manifest,
    pub(crate) origin: Arc<Origin>,
    pub(crate) report: LoadReport,
    pub(crate) features: FeaturePlan,
    pub(crate) maker: Arc<InstanceMaker>,
    /// Listener, if the policy subscribes to events or has a timer.
    pub(crate) listener: Option<Arc<ListenerInstance>>,
    pub(crate) budget: CallBudget,
    pub(crate) slots: InstancePool,
    pub(crate) counters: PolicyCounters,
}

/// Creates configured instances that all have the same plan.
pub(crate) struct InstanceMaker {
    pub(crate) blueprint: ComponentBlueprint,
    pub(crate) state: Arc<PolicyState>,
    pub(crate) params: String,
    pub(crate) plan: Plan,
}

impl WasmPolicy {
    /// Returns name and version.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the policy apart from this one, for decisions without effect: its memory is empty, its counters begin at
    /// 0, it receives no events, and its calls have more time.
    #[must_use]
    pub fn apart(&self) -> Self {
        let maker = InstanceMaker {
            blueprint: self
                .maker
                .blueprint
                .with_log(PolicyLog::new(Arc::clone(&self.name))),
            state: Arc::default(),
            params: self.maker.params.clone(),
            plan: self.maker.plan.clone(),
        };
        Self {
            name: Arc::clone(&self.name),
            manifest: self.manifest.clone(),
            origin: Arc::clone(&self.origin),
            report: self.report,
            features: self.features.clone(),
            maker: Arc::new(maker),
            listener: None,
            budget: CallBudget {
                cpu: self.budget.cpu.max(PATIENCE),
                wall: self.budget.wall.max(PATIENCE),
            },
            slots: InstancePool::new(1),
            counters: PolicyCounters::default(),
        }
    }

    /// Returns the SHA-256 of the component's bytes, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.origin.sha256
    }

    /// Returns the measurements of loading.
    #[must_use]
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn stats(&self) -> PolicyStats {
        let log = &self.maker.blueprint.log;
        self.counters.read(self.slots.requests(), log.dropped())
    }

    /// Repeats an earlier decision with its recorded host calls, without changing any state. The same component with
    /// the same `params` gives the same verdict, bit for bit, or the same fault. Only a fault of time
    /// ([`FaultKind::Deadline`]) need not recur.
    ///
    /// # Errors
    /// [`Divergence`] if the host calls differ from the recorded ones. The same component never diverges unless its
    /// globals keep state.
    pub fn decide_replaying(
        &self,
        input: &DecisionInput<'_>,
        transcript: &Transcript,
    ) -> Result<Result<Verdict, PolicyFault>, Divergence> {
        self.replaying(transcript, |recorder| self.decide_on(recorder, input))
    }

    /// Repeats an earlier scoring, like [`WasmPolicy::decide_replaying`].
    ///
    /// # Errors
    /// [`Divergence`] in the same cases.
    pub fn score_replaying(
        &self,
        input: &DecisionInput<'_>,
        transcript: &Transcript,
    ) -> Result<Result<Vec<f64>, PolicyFault>, Divergence> {
        self.replaying(transcript, |recorder| self.score_on(recorder, input))
    }

    fn replaying<T>(
        &self,
        transcript: &Transcript,
        call: impl FnOnce(&mut Option<Box<HostCallRecorder>>) -> Result<T, PolicyFault>,
    ) -> Result<Result<T, PolicyFault>, Divergence> {
        let mut recorder = Some(Box::new(HostCallRecorder::replaying(transcript)));
        let answer = call(&mut recorder);
        // A decision that was cut off by its deadline is not a different one.
        let is_cut = matches!(&answer, Err(fault) if matches!(fault.kind, FaultKind::Deadline | FaultKind::NoInstance));
        if let Some(HostCallRecorder::Replaying(replay)) = recorder.map(|recorder| *recorder)
            && !is_cut
        {
            replay.finish()?;
        }
        Ok(answer)
    }

    fn decide_on(
        &self,
        recorder: &mut Option<Box<HostCallRecorder>>,
        input: &DecisionInput<'_>,
    ) -> Result<Verdict, PolicyFault> {
        self.call(|instance| instance.with_recorder(recorder, |instance| instance.decide(input, self.budget)))
    }

    fn score_on(
        &self,
        recorder: &mut Option<Box<HostCallRecorder>>,
        input: &DecisionInput<'_>,
    ) -> Result<Vec<f64>, PolicyFault> {
        self.call(|instance| instance.with_recorder(recorder, |instance| instance.score(input, self.budget)))
    }

    /// Makes a call on an instance that no other thread uses.
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
        slot: &mut PooledInstance,
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
        // After a failure the instance is dropped here: it cannot be entered again.
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

impl PolicyDescription for WasmPolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn plan(&self) -> &FeaturePlan {
        &self.features
    }

    fn origin(&self) -> Option<&Arc<Origin>> {
        Some(&self.origin)
    }
}

impl Policy for WasmPolicy {
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        self.decide_on(&mut None, input)
    }

    fn decide_recording(&self, input: &DecisionInput<'_>) -> (Result<Verdict, PolicyFault>, Transcript) {
        let mut recorder = Some(Box::new(HostCallRecorder::recording()));
        let verdict = self.decide_on(&mut recorder, input);
        (verdict, HostCallRecorder::into_transcript(recorder))
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

    fn score_recording(
        &self,
        input: &DecisionInput<'_>,
        scores: &mut [f64],
    ) -> (Result<(), PolicyFault>, Transcript) {
        let mut recorder = Some(Box::new(HostCallRecorder::recording()));
        let answer = self.score_on(&mut recorder, input);
        let answer = answer.map(|given| scores.copy_from_slice(&given));
        (answer, HostCallRecorder::into_transcript(recorder))
    }
}

impl InstanceMaker {
    /// Creates a configured instance.
    pub(crate) fn make(&self) -> Result<Instance, Failure> {
        let state = Arc::clone(&self.state);
        let mut instance = self.blueprint.instantiate(state).map_err(|error| match error {
            InstantiateError::Instantiate(failure) => failure,
            InstantiateError::Types(error) => Failure::no_instance(error.to_string()),
        })?;
        match instance.configure(&self.params)? {
            Ok(plan) if self.promised(&plan) => Ok(instance),
            Ok(_) => Err(Failure::no_instance(
                "a new instance requests other features under the same `params`",
            )),
            Err(message) => Err(Failure::no_instance(format!(
                "a fresh instance refuses `params`: {message}"
            ))),
        }
    }

    /// Returns `true` if a plan is the one that the router computes.
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
