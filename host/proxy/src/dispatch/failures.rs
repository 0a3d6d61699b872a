//! Failed attempts of one request, and the decision to try again.

use std::time::Duration;

use placement::NoCandidate;
use routing::WorkerId;

use crate::base::reply::Refusal;
use crate::dispatch::attempt_error::{AttemptError, AttemptFailure};
use crate::dispatch::inference_request::InferenceRequest;

/// Failed attempts of a request.
#[derive(Debug, Default)]
pub(crate) struct FailedAttempts {
    /// Workers that are excluded.
    pub(crate) excluded: Vec<WorkerId>,
    /// Excluded workers that may have failed only because of another one.
    suspected: Vec<WorkerId>,
    /// Number of failed attempts.
    pub(crate) count: u32,
    /// `true` once a worker answered that it does not serve the model. Another worker is tried once.
    is_not_served: bool,
    last: Option<AttemptError>,
}

impl FailedAttempts {
    /// Records a failure. Returns the pause before the next attempt, or the refusal if there is none.
    pub(crate) fn add(
        &mut self,
        failure: AttemptFailure,
        request: &InferenceRequest,
    ) -> Result<Duration, Refusal> {
        self.excluded.extend(failure.blamed);
        for suspect in failure.suspected.into_iter().flatten() {
            self.excluded.push(suspect);
            self.suspected.push(suspect);
        }
        self.count += 1;
        let pool = request.pool();
        let error = failure.error;
        let is_not_served = matches!(error, AttemptError::NotServed(_));
        let is_settled = is_not_served && std::mem::replace(&mut self.is_not_served, true);
        let is_poison = request.progress.crashes.count() >= pool.retries.spec.crashes as usize;
        let may_go_on = !is_poison && !is_settled && error.may_go_elsewhere();
        let pause = if may_go_on && self.count < pool.limits.attempts {
            pool.retry(&error, self.count, request.seed())
        } else {
            None
        };
        // A worker's answer is more useful to a client than the failure to reach the next worker.
        let error = match self.last.take() {
            Some(
                answer @ (AttemptError::Refused(_) | AttemptError::HeldBack(_) | AttemptError::NotServed(_)),
            ) if error.cost_nothing() => answer,
            _ => error,
        };
        let Some(pause) = pause else {
            return Err(error.into());
        };
        self.last = Some(error);
        Ok(pause)
    }

    /// Readmits one worker that was only suspected, once, because no other is left. Returns `true` if there is one.
    pub(crate) fn forgive(&mut self) -> bool {
        let Some(suspect) = self.suspected.pop() else {
            return false;
        };
        self.excluded.retain(|worker| *worker != suspect);
        true
    }

    /// Returns the refusal of a request that no worker is left for.
    pub(crate) fn refusal(&mut self, none: NoCandidate, request: &InferenceRequest) -> Refusal {
        match (none, self.last.take()) {
            (NoCandidate::EmptyPool, _) => Refusal::PoolEmpty {
                pool: request.pool().workers.name.clone(),
            },
            (_, Some(answer @ AttemptError::NotServed(_))) => answer.into(),
            (NoCandidate::NotServed, _) => Refusal::not_served(&request.params.model),
            (NoCandidate::CannotSplit, _) if request.dialect_is_unknown() => Refusal::DialectUnknown {
                pool: request.pool().workers.name.clone(),
            },
            (NoCandidate::CannotSplit, _) => Refusal::CannotSplit {
                pool: request.pool().workers.name.clone(),
            },
            (NoCandidate::MissingRole { missing }, _) => Refusal::OneSided {
                pool: request.pool().workers.name.clone(),
                missing,
            },
            (NoCandidate::AllTried, Some(error)) => error.into(),
            (NoCandidate::AllTried, None) => Refusal::NoWorker(None),
        }
    }
}
