//! What the host keeps beside one instance: its limits and, during a call, what its imports answer from.

use std::sync::Arc;

use routing::{DecisionInput, DecisionQueries, Question, SplitMix64, WaitsFor};

use crate::budget::{Budget, Meter};
use crate::limits::Limits;
use crate::policy_log::PolicyLog;
use crate::state::PolicyState;
use crate::tape::{Answered, Asked, Tape};
use crate::ticker::Watch;

/// The host's side of an instance.
pub(crate) struct Guest {
    pub(crate) log: Arc<PolicyLog>,
    pub(crate) state: Arc<PolicyState>,
    pub(crate) limits: Limits,
    pub(crate) meter: Meter,
    /// None in `describe` and `configure`, where there is nothing to ask about.
    pub(crate) decision: Option<Decision>,
    /// None, as nearly always: nothing is noted.
    pub(crate) tape: Option<Box<Tape>>,
    /// On while a call is under way.
    pub(crate) watch: Watch,
}

/// What the imports answer from while a decision runs, or events are told.
pub(crate) struct Decision {
    pub(crate) queries: Arc<dyn DecisionQueries>,
    pub(crate) session: Option<u64>,
    pub(crate) now_us: u64,
    pub(crate) random: SplitMix64,
    /// Whom the request waits for, should it be held.
    pub(crate) waits_for: Option<WaitsFor>,
}

impl Decision {
    pub(crate) fn of(input: &DecisionInput<'_>) -> Self {
        let request = input.request;
        Self {
            queries: Arc::clone(input.queries),
            session: request.session,
            now_us: request.now_us,
            random: SplitMix64::of_decision(request.seed(), request.attempt),
            waits_for: None,
        }
    }

    /// No request is at hand: `queries` know workers only.
    pub(crate) fn without_request(queries: Arc<dyn DecisionQueries>, now_us: u64) -> Self {
        Self {
            queries,
            session: None,
            now_us,
            random: SplitMix64::of_decision(now_us, 0),
            waits_for: None,
        }
    }
}

impl Guest {
    pub(crate) fn begin_call(&mut self, budget: Budget, decision: Option<Decision>) {
        self.limits.begin_call();
        self.meter = Meter::new(budget);
        self.decision = decision;
        self.watch.begin();
    }

    /// An import is called; `question` says with what.
    pub(crate) fn ask(&mut self, question: impl FnOnce() -> Question) -> Asked {
        match &mut self.tape {
            None => Asked::Live,
            Some(tape) => tape.ask(question()),
        }
    }

    /// The import's answer: from what was noted, where the call is replayed, else what `live` gives.
    pub(crate) fn answer<T: Answered>(&mut self, asked: Asked, live: impl FnOnce(&mut Self) -> T) -> T {
        match asked {
            Asked::Live => live(self),
            Asked::Noting(question) => {
                let answer = live(self);
                if let Some(tape) = &mut self.tape {
                    tape.note(question, answer.clone().answer());
                }
                answer
            }
            Asked::Before(answer) => answer.and_then(T::of).unwrap_or_else(T::none),
        }
    }
}
