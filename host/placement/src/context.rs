//! Decision about one request: which policies are called about which workers, and the outcome of their answers.

use std::sync::Arc;

use routing::{Chosen, Decision, DecisionQueries, Offer, Phase, Policy, RequestFacts, Role};

use crate::attempt_state::AttemptState;
use crate::call::PolicyCall;
use crate::candidates::Candidates;
use crate::eligible::EligibleSet;
use crate::observer::PlacementObserver;
use crate::outcome::{FallbackCause, PlacementOutcome, WorkerChoice, WorkerPlacement};
use crate::part::PlacementPart;
use crate::queries::CallQueries;
use crate::roles::RoleSet;
use crate::view::PlacementView;

/// One decision: the view of the router, the request's state, and the buffers.
#[derive(Debug)]
pub struct DecisionContext<'a, V, O> {
    /// State of the router.
    pub view: &'a V,
    /// Receives the steps.
    pub observer: &'a mut O,
    /// State of the request.
    pub state: AttemptState<'a>,
    /// The workers that may be chosen.
    pub eligible: EligibleSet,
    /// Buffers. After the decision they have the rows of the last call.
    pub candidates: &'a mut Candidates,
}

/// The decider of a phase.
#[derive(Debug, Clone, Copy)]
enum PhaseDecider<'a> {
    /// The policy of the phase.
    Policy,
    /// A version of it that is chosen already.
    Version(Chosen<'a>),
    /// The fallback.
    Fallback,
}

/// Phase of a call, and its time on the policies' clock.
#[derive(Debug, Clone, Copy)]
struct CallMoment {
    phase: Phase,
    now_us: u64,
}

/// The outcome of one phase.
enum PhaseOutcome {
    Chosen(ScoredChoice),
    Ended(PlacementOutcome),
}

/// A worker that was chosen, and its figure of merit.
#[derive(Clone, Copy)]
struct ScoredChoice {
    choice: WorkerChoice,
    score: f64,
}

impl PhaseOutcome {
    /// Returns the outcome where the chosen worker does all of the part.
    fn whole(self) -> PlacementOutcome {
        match self {
            Self::Chosen(chosen) => PlacementOutcome::Dispatch(WorkerPlacement {
                answers: chosen.choice,
                prefills: None,
                score: chosen.score,
            }),
            Self::Ended(outcome) => outcome,
        }
    }
}

impl<'a, V: PlacementView, O: PlacementObserver<V>> DecisionContext<'a, V, O> {
    /// Decides once.
    ///
    /// # Errors
    /// The error of the view's [`fallback`](crate::PolicyView::fallback), where no policy has an answer.
    pub fn decide(&mut self, part: PlacementPart) -> Result<PlacementOutcome, V::NoAnswer> {
        let phase = match part {
            PlacementPart::Decode => Phase::Decode,
            PlacementPart::Request if !self.eligible.splits => Phase::Mixed,
            PlacementPart::Request if self.view.has_phase_policies() => {
                return self.by_phase(PhaseDecider::Policy);
            }
            PlacementPart::Request => return self.pair(),
        };
        let outcome = self.one(phase, self.eligible, PhaseDecider::Policy)?;
        Ok(outcome.whole())
    }

    /// Places both legs in one call, where the version that decides can. Where it has no answer, the fallback places
    /// them one after the other.
    fn pair(&mut self) -> Result<PlacementOutcome, V::NoAnswer> {
        let view = self.view;
        let now_us = view.now_us();
        let Some(chosen) = view.policy(Phase::Mixed).choose(now_us) else {
            self.observer
                .fallback_used(Phase::Mixed, FallbackCause::CircuitOpen);
            return self.by_phase(PhaseDecider::Fallback);
        };
        let policy = &chosen.version().policy;
        if !policy.plan().pairs() {
            return self.by_phase(PhaseDecider::Version(chosen));
        }
        let alone = view.allowed().alone;
        let outcome = self.call(
            CallMoment {
                phase: Phase::Mixed,
                now_us,
            },
            self.eligible,
            &**policy,
            |call, candidates, observer| {
                let roles = std::mem::take(&mut candidates.roles);
                let offer = Offer::Pair { roles: &roles, alone };
                let decision = call.call_version(chosen, offer, candidates, observer);
                candidates.roles = roles;
                match decision {
                    Decision::Route(route) => Some(PlacementOutcome::Dispatch(WorkerPlacement {
                        answers: call.choice(candidates, route.row()),
                        prefills: route.prefill().map(|row| call.choice(candidates, row)),
                        score: route.score(),
                    })),
                    Decision::Queue(hold) => Some(PlacementOutcome::Hold(call.hold_terms(hold))),
                    Decision::Reject(rejection) => Some(PlacementOutcome::Reject(rejection)),
                    Decision::Pass => None,
                }
            },
        );
        match outcome {
            Some(outcome) => Ok(outcome),
            None => self.by_phase(PhaseDecider::Fallback),
        }
    }

    /// Places the prefill leg, then the decode leg. A version that is chosen already decides the first.
    fn by_phase(&mut self, decider: PhaseDecider<'a>) -> Result<PlacementOutcome, V::NoAnswer> {
        let begins = self.eligible.only(RoleSet::PREFILL_OR_MIXED);
        let begins = match self.one(Phase::Prefill, begins, decider)? {
            PhaseOutcome::Chosen(chosen) => chosen,
            PhaseOutcome::Ended(outcome) => return Ok(outcome),
        };
        if self.view.worker(begins.choice.member).spec().role == Role::Mixed {
            return Ok(PhaseOutcome::Chosen(begins).whole());
        }
        let decider = match decider {
            PhaseDecider::Version(_) => PhaseDecider::Policy,
            decider => decider,
        };
        let decodes = self.eligible.only(RoleSet::DECODE);
        Ok(match self.one(Phase::Decode, decodes, decider)? {
            PhaseOutcome::Chosen(decodes) => PlacementOutcome::Dispatch(WorkerPlacement {
                answers: decodes.choice,
                prefills: Some(begins.choice),
                score: begins.score,
            }),
            PhaseOutcome::Ended(outcome) => outcome,
        })
    }

    /// Chooses one worker for one phase.
    fn one(
        &mut self,
        phase: Phase,
        eligible: EligibleSet,
        decider: PhaseDecider<'a>,
    ) -> Result<PhaseOutcome, V::NoAnswer> {
        let view = self.view;
        let now_us = view.now_us();
        let (chosen, is_called) = match decider {
            PhaseDecider::Policy => (view.policy(phase).choose(now_us), true),
            PhaseDecider::Version(chosen) => (Some(chosen), true),
            PhaseDecider::Fallback => (None, false),
        };
        let Some(chosen) = chosen else {
            if is_called {
                self.observer.fallback_used(phase, FallbackCause::CircuitOpen);
            }
            let fallback = view.fallback()?;
            let moment = CallMoment { phase, now_us };
            let outcome = self.call(moment, eligible, fallback, |call, candidates, observer| {
                fall_back(call, fallback, candidates, observer)
            });
            return Ok(outcome);
        };
        let policy = &*chosen.version().policy;
        let moment = CallMoment { phase, now_us };
        self.call(moment, eligible, policy, |call, candidates, observer| {
            let offer = Offer::One {
                candidates: candidates.members.len(),
            };
            Ok(match call.call_version(chosen, offer, candidates, observer) {
                Decision::Route(route) => PhaseOutcome::Chosen(ScoredChoice {
                    choice: call.choice(candidates, route.row()),
                    score: route.score(),
                }),
                Decision::Queue(hold) => PhaseOutcome::Ended(PlacementOutcome::Hold(call.hold_terms(hold))),
                Decision::Reject(rejection) => PhaseOutcome::Ended(PlacementOutcome::Reject(rejection)),
                Decision::Pass => fall_back(call, view.fallback()?, candidates, observer),
            })
        })
    }

    /// Lists the candidates, has `decide` call a policy about them, and returns the buffers.
    fn call<T>(
        &mut self,
        moment: CallMoment,
        eligible: EligibleSet,
        policy: &dyn Policy,
        decide: impl FnOnce(&PolicyCall<'_, V>, &mut Candidates, &mut O) -> T,
    ) -> T {
        self.observer.call_started();
        let view = self.view;
        self.candidates.list(view, self.state.tried, eligible);
        let identity = view.identity();
        let facts = RequestFacts {
            seq: identity.seq,
            run: identity.run,
            session: identity.session,
            phase: moment.phase,
            attempt: self.state.attempt,
            now_us: moment.now_us,
        };
        self.candidates.matches.clear();
        let queries = CallQueries::begin(view.queries(), policy.needs_prefix(), self.candidates);
        let queries = Arc::new(queries);
        let call = PolicyCall {
            view,
            facts,
            state: self.state,
            shared: Arc::clone(&queries) as Arc<dyn DecisionQueries>,
            queries: &queries,
        };
        let decided = decide(&call, self.candidates, self.observer);
        drop(call);
        if let Some(queries) = Arc::into_inner(queries) {
            queries.end(self.candidates);
        }
        decided
    }
}

fn fall_back<V: PlacementView, O: PlacementObserver<V>>(
    call: &PolicyCall<'_, V>,
    fallback: &routing::LeastLoaded,
    candidates: &mut Candidates,
    observer: &mut O,
) -> PhaseOutcome {
    let chosen = call.call_fallback(fallback, candidates, observer);
    PhaseOutcome::Chosen(ScoredChoice {
        choice: call.choice(candidates, chosen.row),
        score: chosen.score,
    })
}
