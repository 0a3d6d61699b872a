//! Rehearsal: a policy decides every built-in scenario on new instances, so that its author sees the router's view.
//!
//! The report has facts only, no rating of the policy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use routing::{FaultKind, FeaturePlan, Verdict};

use crate::budget::{CallBudget, thread_cpu_time};
use crate::engine::PolicyEngine;
use crate::inspection::DescribedPolicy;
use crate::instance::Instance;
use crate::listener;
use crate::listener_check::{self, ListenerCheck};
use crate::load::{introduce, trial_budget};
use crate::load_error::LoadError;
use crate::policy::InstanceMaker;
use crate::probe::{ProbeError, decide_synthetic, probe};
use crate::scenarios::Scenario;
use crate::settings::PolicySettings;
use crate::synthetic::{InputRecipe, SyntheticCall};

/// Consecutive decisions, of which the second half should need no more memory than the first.
const ROUNDS: u64 = 2_000;
/// Limit of the real time of each half, for slow policies.
const HALF_MOST: Duration = Duration::from_secs(5);
/// Number of the request in every scenario.
const REQUEST: u64 = 7;

/// Result of a rehearsal.
#[derive(Debug)]
pub struct Rehearsal {
    /// The policy's own description.
    pub description: DescribedPolicy,
    /// Real time of compiling and linking.
    pub compiled_in: Duration,
    /// Real time of instantiating and configuring: the cost of a fault for the next call.
    pub instantiated_in: Duration,
    /// Reason why the router would refuse it after all: the result of its own trial.
    pub refused: Option<LoadError>,
    /// Result of each scenario.
    pub scenes: Vec<RehearsedScenario>,
    /// Result of many consecutive requests.
    pub endurance: Endurance,
    /// Results of event and timer calls; empty if it has none.
    pub listener_checks: Vec<ListenerCheck>,
}

/// Result of one scenario.
#[derive(Debug)]
pub struct RehearsedScenario {
    /// The scenario.
    pub scenario: Scenario,
    /// Result of the first call of a new instance, checked as the router checks it.
    pub outcome: Result<Verdict, ProbeError>,
    /// CPU time of that call.
    pub first_in: Duration,
    /// CPU time of the same call again on the same instance; `None` if the first one failed.
    pub warm_in: Option<Duration>,
    /// Another new instance gave the same result, bit for bit.
    pub repeats: bool,
    /// Set if the same instance with the same `state` as before gave the same result again. Otherwise its answers
    /// depend on its own memory.
    pub forgets: bool,
}

/// Effect of two thousand consecutive requests (fewer for a slow policy) on one instance and its state, at the middle
/// and at the end.
#[derive(Debug)]
pub struct Endurance {
    /// Number of decisions.
    pub calls: u64,
    /// The first failed decision, counted from 1, and its error; it was the last one then.
    pub fault: Option<(u64, ProbeError)>,
    /// Number of keys of its `state`; every request had a session of its own.
    pub state_keys: [usize; 2],
    /// Bytes of its linear memory.
    pub memory_bytes: [usize; 2],
}

impl PolicyEngine {
    /// Makes a policy decide every scenario that applies to it, each with an empty `state`. `begins` is called before
    /// each part.
    ///
    /// # Errors
    /// [`LoadError`] if it cannot decide at all.
    pub fn rehearse(
        &self,
        name: &str,
        bytes: &[u8],
        settings: &PolicySettings,
        begins: impl Fn(RehearsalStep),
    ) -> Result<Rehearsal, LoadError> {
        begins(RehearsalStep::Compiling);
        let start = Instant::now();
        let blueprint = self.blueprint(&name.into(), bytes, settings)?;
        let compiled_in = start.elapsed();
        let budget = trial_budget(settings);
        let (mut instance, introduction) = introduce(&blueprint, settings)?;
        let refused = probe(&mut instance, &introduction.features, budget)
            .and_then(|_| {
                listener_check::probe(
                    &mut instance,
                    &introduction.optional_calls,
                    listener::budget(settings),
                )
            })
            .err();
        drop(instance);
        let mut stage = RehearsalStage {
            maker: InstanceMaker {
                blueprint,
                state: Arc::default(),
                params: settings.params_json.clone(),
                plan: introduction.plan.clone(),
            },
            features: introduction.features.clone(),
            budget,
        };
        let start = Instant::now();
        stage.maker.make().map_err(LoadError::SecondInstance)?;
        let instantiated_in = start.elapsed();
        let scenes = stage.play_all(&begins);
        begins(RehearsalStep::Endurance);
        let endurance = stage.endure();
        begins(RehearsalStep::Events);
        let listener_checks =
            listener_check::rehearse(&introduction.optional_calls, listener::budget(settings), || {
                stage.maker.state = Arc::default();
                let mut instance = stage.maker.make()?;
                instance.subscribe()?;
                Ok(instance)
            });
        Ok(Rehearsal {
            description: introduction.into(),
            compiled_in,
            instantiated_in,
            refused,
            scenes,
            endurance,
            listener_checks,
        })
    }
}

/// Part of a rehearsal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RehearsalStep {
    /// Compiling the component.
    Compiling,
    /// One scenario, counted from 1.
    Scenario {
        /// The scenario's name.
        name: &'static str,
        /// The scenario's number.
        number: usize,
        /// Number of scenarios.
        of: usize,
    },
    /// Many consecutive requests.
    Endurance,
    /// Events and timer calls.
    Events,
}

/// Environment of the scenarios.
struct RehearsalStage {
    maker: InstanceMaker,
    features: FeaturePlan,
    budget: CallBudget,
}

impl RehearsalStage {
    fn play_all(&mut self, begins: &impl Fn(RehearsalStep)) -> Vec<RehearsedScenario> {
        let scenarios = Scenario::all(&self.features);
        let of = scenarios.len();
        let numbered = (1..).zip(scenarios);
        let played = numbered.map(|(number, scenario)| {
            let name = scenario.name;
            begins(RehearsalStep::Scenario { name, number, of });
            self.play(scenario)
        });
        played.collect()
    }

    fn play(&mut self, scenario: Scenario) -> RehearsedScenario {
        let call = scenario.call(&self.features);
        let (mut instance, outcome, first_in) = self.play_on_new_instance(&call);
        let (_, other, _) = self.play_on_new_instance(&call);
        let warm = instance.as_mut().filter(|_| outcome.is_ok()).map(|instance| {
            instance.store.data_mut().state = Arc::default();
            timed(|| decide_synthetic(instance, &call, REQUEST, self.budget))
        });
        RehearsedScenario {
            scenario,
            repeats: same(&outcome, &other),
            forgets: warm.as_ref().is_none_or(|(warm, _)| same(&outcome, warm)),
            outcome,
            first_in,
            warm_in: warm.map(|(_, took)| took),
        }
    }

    /// Makes the call on a new instance, and returns the instance.
    fn play_on_new_instance(
        &mut self,
        call: &SyntheticCall,
    ) -> (Option<Instance>, Result<Verdict, ProbeError>, Duration) {
        let played = self.play_once(call);
        if exceeded_its_time(&played.1) {
            return self.play_once(call);
        }
        played
    }

    fn play_once(
        &mut self,
        call: &SyntheticCall,
    ) -> (Option<Instance>, Result<Verdict, ProbeError>, Duration) {
        match self.fresh() {
            Ok(mut instance) => {
                let (outcome, took) = timed(|| decide_synthetic(&mut instance, call, REQUEST, self.budget));
                (Some(instance), outcome, took)
            }
            Err(error) => (None, Err(error), Duration::ZERO),
        }
    }

    /// Creates an instance over an empty state.
    fn fresh(&mut self) -> Result<Instance, ProbeError> {
        self.maker.state = Arc::default();
        Ok(self.maker.make()?)
    }

    fn endure(&mut self) -> Endurance {
        let mut endurance = Endurance {
            calls: 0,
            fault: None,
            state_keys: [0; 2],
            memory_bytes: [0; 2],
        };
        let mut instance = match self.fresh() {
            Ok(instance) => instance,
            Err(error) => {
                endurance.fault = Some((1, error));
                return endurance;
            }
        };
        let call = SyntheticCall::new(&self.features, InputRecipe::USUAL, 1);
        for half in 0..2 {
            let start = Instant::now();
            for _ in 0..ROUNDS / 2 {
                if start.elapsed() > HALF_MOST {
                    break;
                }
                endurance.calls += 1;
                let mut answer = decide_synthetic(&mut instance, &call, endurance.calls, self.budget);
                if exceeded_its_time(&answer) {
                    answer = self.maker.make().map_err(ProbeError::from).and_then(|fresh| {
                        instance = fresh;
                        decide_synthetic(&mut instance, &call, endurance.calls, self.budget)
                    });
                }
                if let Err(error) = answer {
                    endurance.fault = Some((endurance.calls, error));
                    return endurance;
                }
            }
            endurance.state_keys[half] = self.maker.state.keys();
            endurance.memory_bytes[half] = instance.store.data().limits.granted();
        }
        endurance
    }
}

/// Returns `true` if a call should be repeated: a busy machine may charge a call for time that it did not have.
fn exceeded_its_time(outcome: &Result<Verdict, ProbeError>) -> bool {
    matches!(outcome, Err(error) if error.kind() == FaultKind::Deadline)
}

/// Returns the result of `act` and its CPU time.
fn timed<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let start = thread_cpu_time();
    let done = act();
    (done, thread_cpu_time().saturating_sub(start))
}

/// Returns `true` if two results are the same bit for bit, or faults of one kind. A call that exceeded its time might
/// have been the same.
fn same(one: &Result<Verdict, ProbeError>, other: &Result<Verdict, ProbeError>) -> bool {
    match (one, other) {
        (Ok(Verdict::Route(one)), Ok(Verdict::Route(other))) => {
            (one.row, one.prefill, one.score.to_bits()) == (other.row, other.prefill, other.score.to_bits())
        }
        (Ok(one), Ok(other)) => one == other,
        (Err(one), Err(other)) if one.kind() == other.kind() => true,
        (Err(ended), _) | (_, Err(ended)) => ended.kind() == FaultKind::Deadline,
    }
}

#[cfg(test)]
mod tests {
    use routing::Choice;

    use super::*;
    use crate::fault::Failure;

    fn route(score: f64) -> Result<Verdict, ProbeError> {
        Ok(Verdict::Route(Choice {
            row: 1,
            prefill: None,
            score,
        }))
    }

    fn fault(kind: FaultKind) -> Result<Verdict, ProbeError> {
        Err(Failure {
            kind,
            detail: String::new(),
        }
        .into())
    }

    #[test]
    fn outcomes_are_the_same_to_the_bit_and_time_proves_nothing() {
        assert!(same(&route(f64::NAN), &route(f64::NAN)));
        assert!(!same(&route(0.0), &route(-0.0)));
        assert!(same(&fault(FaultKind::Trap), &fault(FaultKind::Trap)));
        assert!(!same(&fault(FaultKind::Trap), &route(0.0)));
        assert!(!same(&route(0.0), &fault(FaultKind::Trap)));
        assert!(same(&fault(FaultKind::Deadline), &route(0.0)));
        assert!(same(&route(0.0), &fault(FaultKind::Deadline)));
    }
}
