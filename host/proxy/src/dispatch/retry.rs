//! Retry decision: whether a request is tried again, paid for by the retry budget of its pool.

use std::time::Duration;

use http::StatusCode;

use crate::base::label::RetryKind;
use crate::dispatch::attempt_error::AttemptError;
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::pool_state::PoolState;
use crate::limits::retries::pause;

impl PoolState {
    /// Returns the pause before another try, where one may follow an attempt that ended with this error.
    pub(crate) fn retry(&self, error: &AttemptError, tries: u32, seed: u64) -> Option<Duration> {
        if error.cost_nothing() {
            self.metrics.retries.count(RetryKind::Free);
            return Some(Duration::ZERO);
        }
        let is_paid = matches!(error, AttemptError::HeldBack(_));
        (is_paid || self.pay_for_retry()).then(|| pause(&self.retries.spec, tries, seed))
    }

    /// Charges the retry budget for another attempt. Returns `true` if the budget allows it.
    pub(crate) fn pay_for_retry(&self) -> bool {
        let paid = self.retries.budget.pay(&self.retries.spec);
        let kind = if paid {
            RetryKind::Paid
        } else {
            RetryKind::OverBudget
        };
        self.metrics.retries.count(kind);
        paid
    }
}

/// Returns `true` if another worker is tried instead of a response of this status, where the request is not split. In
/// that case the retry is charged to the budget. A pinned request has no other worker.
pub(crate) fn charge_status_retry(request: &InferenceRequest, status: StatusCode, tries: u32) -> bool {
    let pool = request.pool();
    request.progress.pinned.is_none()
        && pool.retries.spec.statuses.contains(&status)
        && tries < pool.limits.attempts
        && pool.workers.serving(&request.params.model).count() > tries as usize
        && pool.pay_for_retry()
}
