//! Outcome of a decision: the workers chosen, or how the request is held, or the refusal.

use std::error::Error;
use std::time::Duration;

use routing::{Decision, FaultKind, InvalidVerdict, Offer, PolicyFault, Rejection, Verdict, WorkerId, check};
use thiserror::Error;

/// Action of the router for a request.
#[derive(Debug)]
pub enum PlacementOutcome {
    /// Sends it to these workers.
    Dispatch(WorkerPlacement),
    /// Holds it.
    Hold(HoldTerms),
    /// Refuses it.
    Reject(Rejection),
}

/// The workers that a request goes to.
#[derive(Debug, Clone, Copy)]
pub struct WorkerPlacement {
    /// The worker that answers the client.
    pub answers: WorkerChoice,
    /// The worker that computes the prompt for it, where another does.
    pub prefills: Option<WorkerChoice>,
    /// Policy's figure of merit for the worker where the request begins; NaN where it has none.
    pub score: f64,
}

/// A chosen worker.
#[derive(Debug, Clone, Copy)]
pub struct WorkerChoice {
    /// Index of the pool's member.
    pub member: usize,
    /// Prompt tokens that the worker holds on any tier, where the index was looked up and its cache is known.
    pub matched: Option<u32>,
    /// Longest match of all candidates that could have been chosen in its place.
    pub best: Option<u32>,
}

/// Terms on which a request is held.
#[derive(Debug, Clone, Copy)]
pub struct HoldTerms {
    /// Ascending order among the requests held for the pool.
    pub order: f64,
    /// Longest time until the next decision.
    pub reevaluate_after: Duration,
    /// The worker that it waits for, and its work there in the policy's unit.
    pub waits_for: Option<(WorkerId, u32)>,
}

impl WorkerPlacement {
    /// Returns a placement on one worker that no policy chose.
    #[must_use]
    pub fn alone(member: usize) -> Self {
        Self {
            answers: WorkerChoice {
                member,
                matched: None,
                best: None,
            },
            prefills: None,
            score: f64::NAN,
        }
    }
}

/// Cause of a decision of the fallback in place of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallbackCause {
    /// The policy leaves the decision to the fallback.
    Pass,
    /// The call failed.
    Fault,
    /// The circuits of all its versions are open.
    CircuitOpen,
}

impl FallbackCause {
    /// All causes, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Pass, Self::Fault, Self::CircuitOpen];

    /// Returns the name of the cause in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fault => "fault",
            Self::CircuitOpen => "circuit-open",
        }
    }
}

/// The failure of one call of a policy.
#[derive(Debug, Error)]
#[error(transparent)]
pub enum CallFault {
    /// The policy gave no verdict.
    Policy(PolicyFault),
    /// The verdict makes no sense for the offer.
    Verdict(InvalidVerdict),
}

impl CallFault {
    /// Returns how the call failed.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Policy(fault) => fault.kind,
            Self::Verdict(_) => FaultKind::InvalidVerdict,
        }
    }

    /// Returns the error itself.
    #[must_use]
    pub fn error(&self) -> &(dyn Error + 'static) {
        match self {
            Self::Policy(fault) => fault,
            Self::Verdict(invalid) => invalid,
        }
    }
}

/// Checks a policy's answer against the offer.
///
/// # Errors
/// [`CallFault`] where the policy failed or its verdict makes no sense.
pub fn check_answer(answer: Result<Verdict, PolicyFault>, offer: Offer<'_>) -> Result<Decision, CallFault> {
    check(answer.map_err(CallFault::Policy)?, offer).map_err(CallFault::Verdict)
}
