//! A rehearsal: a policy decides every built-in scenario on fresh instances, so that its author sees what the router would.
//!
//! Nothing here has its own opinion of a good policy; what is told is what happened.

use std::sync::Arc;
use std::time::{Duration, Instant};

use routing::{FaultKind, FeaturePlan, Verdict};

use crate::budget::{Budget, thread_cpu_time};
use crate::engine::PolicyEngine;
use crate::inspection::Interview;
use crate::instance::Instance;
use crate::listener;
use crate::listening_trial::{self, Chore};
use crate::load::{introduce, trial_budget};
use crate::load_error::LoadError;
use crate::made_up::{MadeUpCall, Recipe};
use crate::policy::InstanceMaker;
use crate::probe::{ProbeError, ask, probe};
use crate::scenarios::Scenario;
use crate::settings::PolicySettings;

/// Decisions in a row of which the second half should need no more than the first.
const ROUNDS: u64 = 2_000;
/// Real time for each half of them, for a policy that is slow and may be.
const HALF_MOST: Duration = Duration::from_secs(5);
/// The request that every scenario asks about.
const REQUEST: u64 = 7;

/// What a rehearsal showed.
#[derive(Debug)]
pub struct Rehearsal {
    /// What the policy said of itself.
    pub interview: Interview,
    /// Real time of compiling and linking.
    pub compiled_in: Duration,
    /// Real time of instantiating and configuring: what a fault costs the next call.
    pub instantiated_in: Duration,
    /// Why the router would not load it after all: what its own trial found.
    pub refused: Option<LoadError>,
    /// Each scenario.
    pub scenes: Vec<Scene>,
    /// Many requests in a row.
    pub endurance: Endurance,
    /// What else it is told; empty where it wants no events and does not tick.
    pub chores: Vec<Chore>,
}

/// What became of one scenario.
#[derive(Debug)]
pub struct Scene {
    /// Which.
    pub scenario: Scenario,
    /// What the router would have got from the first call of a fresh instance, checked as the router checks it.
    pub outcome: Result<Verdict, ProbeError>,
    /// CPU time of that call.
    pub first_in: Duration,
    /// CPU time of the same call again on the same instance; none where there was no first answer.
    pub warm_in: Option<Duration>,
    /// Whether another fresh instance did the same, to the bit.
    pub repeats: bool,
    /// Whether that same instance, with the same `state` as before, did the same again: if not, its answers depend on what it keeps in its
    /// own memory.
    pub forgets: bool,
}

/// What two thousand requests in a row, fewer of a slow policy, did to one instance and its state, halfway and at the end.
#[derive(Debug)]
pub struct Endurance {
    /// Decisions that were asked for.
    pub calls: u64,
    /// The first that failed, counted from 1, and how; it was the last one then.
    pub fault: Option<(u64, ProbeError)>,
    /// Keys of its `state`; every request had a session of its own.
    pub state_keys: [usize; 2],
    /// Bytes of its linear memory.
    pub memory_bytes: [usize; 2],
}

impl PolicyEngine {
    /// Has a policy decide every scenario it can meet. Its `state` begins empty in each. `begins` is called before each part.
    ///
    /// # Errors
    /// [`LoadError`] where it comes to no decision at all.
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
                listening_trial::probe(&mut instance, &introduction.wishes, listener::budget(settings))
            })
            .err();
        drop(instance);
        let mut stage = Stage {
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
        let chores = listening_trial::rehearse(&introduction.wishes, listener::budget(settings), || {
            stage.maker.state = Arc::default();
            let mut instance = stage.maker.make()?;
            instance.subscribe()?;
            Ok(instance)
        });
        Ok(Rehearsal {
            interview: introduction.into(),
            compiled_in,
            instantiated_in,
            refused,
            scenes,
            endurance,
            chores,
        })
    }
}

/// Part of a rehearsal that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RehearsalStep {
    /// The component is compiled.
    Compiling,
    /// One scenario, counted from 1, of so many.
    Scenario {
        /// Which.
        name: &'static str,
        /// Its number.
        number: usize,
        /// How many there are.
        of: usize,
    },
    /// Many requests in a row.
    Endurance,
    /// Events and ticks.
    Events,
}

/// Where scenarios are played.
struct Stage {
    maker: InstanceMaker,
    features: FeaturePlan,
    budget: Budget,
}

impl Stage {
    fn play_all(&mut self, begins: &impl Fn(RehearsalStep)) -> Vec<Scene> {
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

    fn play(&mut self, scenario: Scenario) -> Scene {
        let call = scenario.call(&self.features);
        let (mut instance, outcome, first_in) = self.play_afresh(&call);
        let (_, other, _) = self.play_afresh(&call);
        let warm = instance.as_mut().filter(|_| outcome.is_ok()).map(|instance| {
            instance.store.data_mut().state = Arc::default();
            timed(|| ask(instance, &call, REQUEST, self.budget))
        });
        Scene {
            scenario,
            repeats: same(&outcome, &other),
            forgets: warm.as_ref().is_none_or(|(warm, _)| same(&outcome, warm)),
            outcome,
            first_in,
            warm_in: warm.map(|(_, took)| took),
        }
    }

    /// The call on a fresh instance, which is handed back.
    fn play_afresh(
        &mut self,
        call: &MadeUpCall,
    ) -> (Option<Instance>, Result<Verdict, ProbeError>, Duration) {
        let played = self.play_once(call);
        if ended_for_its_time(&played.1) {
            return self.play_once(call);
        }
        played
    }

    fn play_once(&mut self, call: &MadeUpCall) -> (Option<Instance>, Result<Verdict, ProbeError>, Duration) {
        match self.fresh() {
            Ok(mut instance) => {
                let (outcome, took) = timed(|| ask(&mut instance, call, REQUEST, self.budget));
                (Some(instance), outcome, took)
            }
            Err(error) => (None, Err(error), Duration::ZERO),
        }
    }

    /// An instance over an empty state.
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
        let call = MadeUpCall::new(&self.features, Recipe::USUAL, 1);
        for half in 0..2 {
            let start = Instant::now();
            for _ in 0..ROUNDS / 2 {
                if start.elapsed() > HALF_MOST {
                    break;
                }
                endurance.calls += 1;
                let mut answer = ask(&mut instance, &call, endurance.calls, self.budget);
                if ended_for_its_time(&answer) {
                    answer = self.maker.make().map_err(ProbeError::from).and_then(|fresh| {
                        instance = fresh;
                        ask(&mut instance, &call, endurance.calls, self.budget)
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

/// Whether it is worth asking once more: a busy machine may charge a call for time that it did not have.
fn ended_for_its_time(outcome: &Result<Verdict, ProbeError>) -> bool {
    matches!(outcome, Err(error) if error.kind() == FaultKind::Deadline)
}

/// What `act` gives and the CPU time it takes.
fn timed<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let start = thread_cpu_time();
    let done = act();
    (done, thread_cpu_time().saturating_sub(start))
}

/// Whether two outcomes are the same to the bit; of faults, whether they are of one kind. A call that was ended for its time might have been the same.
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
