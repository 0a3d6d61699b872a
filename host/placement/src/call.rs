//! Call of a policy: its columns are laid out, its answer is checked, its circuit learns of the result.

use std::sync::Arc;
use std::time::Duration;

use routing::{
    Chosen, Decision, DecisionInput, DecisionQueries, FeaturePlan, Hold, LeastLoaded, Offer, Policy,
    PolicyFault, RequestFacts, Role, Transcript, Verdict,
};

use crate::attempt_state::AttemptState;
use crate::candidates::Candidates;
use crate::columns::{ColumnInput, lay_out};
use crate::matches::PrefixMatches;
use crate::observer::{CallAnswer, CalledPolicy, PlacementObserver};
use crate::outcome::{FallbackCause, HoldTerms, WorkerChoice, check_answer};
use crate::queries::CallQueries;
use crate::view::PlacementView;

/// One call in progress.
pub struct PolicyCall<'a, V: PlacementView> {
    pub(crate) view: &'a V,
    pub(crate) facts: RequestFacts,
    pub(crate) state: AttemptState<'a>,
    pub(crate) queries: &'a CallQueries<V::Queries>,
    /// Call, shared with the policy.
    pub(crate) shared: Arc<dyn DecisionQueries>,
}

/// A row that was chosen, and its figure of merit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScoredRow {
    pub(crate) row: usize,
    pub(crate) score: f64,
}

impl<V: PlacementView> PolicyCall<'_, V> {
    /// Returns the facts of the request.
    #[must_use]
    pub fn facts(&self) -> &RequestFacts {
        &self.facts
    }

    /// Returns the number of candidates.
    #[must_use]
    pub fn candidates(&self) -> usize {
        self.queries.ids().len()
    }

    /// Lays out the columns of a plan for a record. Matches that it has to look up for it are not kept for the
    /// decision.
    #[must_use]
    pub fn recorded_columns(&self, plan: &FeaturePlan, candidates: &Candidates) -> Vec<f64> {
        let looked_up = match self.queries.known_matches() {
            Some(_) => None,
            None => Some(self.queries.look_up(PrefixMatches::default())),
        };
        let matches = looked_up.as_ref().or(self.queries.known_matches());
        let mut numbers = Vec::new();
        let input = self.column_input(&candidates.members, matches);
        lay_out(self.view, plan, input, &mut numbers);
        numbers
    }

    /// Calls a version and returns its checked answer. A fault counts as a pass.
    pub(crate) fn call_version<O: PlacementObserver<V>>(
        &self,
        chosen: Chosen<'_>,
        offer: Offer<'_>,
        candidates: &mut Candidates,
        observer: &mut O,
    ) -> Decision {
        let policy = &*chosen.version().policy;
        let called = CalledPolicy::Version(chosen);
        let answer = self.call(policy, called, offer, candidates, observer);
        match check_answer(answer, offer) {
            Ok(decision) => {
                let change = chosen.succeeded(self.facts.now_us);
                observer.call_succeeded(self, chosen, &decision, change);
                if matches!(decision, Decision::Pass) {
                    observer.fallback_used(self.facts.phase, FallbackCause::Pass);
                }
                decision
            }
            Err(fault) => {
                let change = chosen.failed(self.facts.now_us);
                observer.call_failed(self, chosen, &fault, change);
                observer.fallback_used(self.facts.phase, FallbackCause::Fault);
                Decision::Pass
            }
        }
    }

    /// Calls the fallback.
    pub(crate) fn call_fallback<O: PlacementObserver<V>>(
        &self,
        fallback: &LeastLoaded,
        candidates: &mut Candidates,
        observer: &mut O,
    ) -> ScoredRow {
        let offer = Offer::One {
            candidates: self.queries.ids().len(),
        };
        let answer = self.call(fallback, CalledPolicy::Fallback, offer, candidates, observer);
        match check_answer(answer, offer) {
            Ok(Decision::Route(route)) => ScoredRow {
                row: route.row(),
                score: route.score(),
            },
            // The fallback chooses a row that it was shown. Were it ever to fail, the first row is as good as any.
            _ => ScoredRow {
                row: 0,
                score: f64::NAN,
            },
        }
    }

    fn call<O: PlacementObserver<V>>(
        &self,
        policy: &dyn Policy,
        called: CalledPolicy<'_>,
        offer: Offer<'_>,
        candidates: &mut Candidates,
        observer: &mut O,
    ) -> Result<Verdict, PolicyFault> {
        let input = self.column_input(&candidates.members, self.queries.known_matches());
        candidates.columns.lay_out(self.view, policy.plan(), input);
        let keeps_queries = observer.policy_called(self, called);
        let input = DecisionInput {
            request: &self.facts,
            ids: self.queries.ids(),
            numbers: candidates.numbers(),
            queries: &self.shared,
        };
        let (answer, transcript) = if keeps_queries {
            policy.decide_recording(&input)
        } else {
            (policy.decide(&input), Transcript::default())
        };
        let call_answer = CallAnswer {
            policy: called,
            offer,
            answer: &answer,
            transcript,
        };
        observer.policy_answered(self, candidates, call_answer);
        answer
    }

    fn column_input<'c>(
        &'c self,
        members: &'c [usize],
        matches: Option<&'c PrefixMatches>,
    ) -> ColumnInput<'c> {
        ColumnInput {
            members,
            matches,
            state: self.state,
        }
    }

    /// Returns how the request is held. The row that it waits for was checked.
    pub(crate) fn hold_terms(&self, hold: Hold) -> HoldTerms {
        HoldTerms {
            order: hold.order,
            reevaluate_after: Duration::from_millis(hold.ask_again_ms.into()),
            waits_for: hold.awaited(self.queries.ids()),
        }
    }

    /// Returns the worker of a row.
    pub(crate) fn choice(&self, candidates: &Candidates, row: usize) -> WorkerChoice {
        let matches = self.queries.known_matches();
        let matched = matches.and_then(|matches| matches.get(row));
        // Where a call has workers of both legs, those of the other leg are no alternative.
        let decodes = |row: usize| candidates.roles[row] == Role::Decode;
        let best = matches.and_then(|matches| matches.best_of(|other| decodes(other) == decodes(row)));
        WorkerChoice {
            member: candidates.members[row],
            matched: matched.map(|found| found.any_tokens),
            best,
        }
    }
}
