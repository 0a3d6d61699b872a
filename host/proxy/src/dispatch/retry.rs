//! Retry decision: whether a request is tried again, paid for by the retry budget of its pool.

use std::time::Duration;

use http::StatusCode;

use super::split::AttemptError;
use crate::base::label::RetryKind;
use crate::limits::retries::pause;
use crate::request::context::RequestContext;
use crate::request::snapshot::PoolState;

impl PoolState {
    /// Returns the pause before another try, where one may follow an attempt that ended with this error.
    pub(crate) fn retry(&self, error: &AttemptError, tries: u32, seed: u64) -> Option<Duration> {
        if error.cost_nothing() {
            self.metrics.retries.count(RetryKind::Free);
            return Some(Duration::ZERO);
        }
        // A response that was held back for another try was paid for then.
        let is_paid = self.pd.is_none() && matches!(error, AttemptError::Refused(_));
        (is_paid || self.pay_for_retry()).then(|| pause(&self.retries, tries, seed))
    }

    /// Charges the retry budget for another attempt. Returns `true` if the budget allows it.
    pub(crate) fn pay_for_retry(&self) -> bool {
        let paid = self.budget.pay(&self.retries);
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
/// that case the retry is charged to the budget.
pub(crate) fn is_worth_another(request: &RequestContext, status: StatusCode, tries: u32) -> bool {
    let pool = request.pool();
    pool.retries.statuses.contains(&status)
        && tries < pool.limits.attempts
        && pool.workers.serving(&request.model).count() > tries as usize
        && pool.pay_for_retry()
}
