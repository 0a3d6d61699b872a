//! Prediction of a prompt at the decode worker of a pair.
//!
//! The decode worker gets the prompt from the prefill worker, which may take seconds to compute it. Until then another
//! request with the same beginning would find nothing at the decode worker. The prediction is therefore made once the
//! prompt is computed, or with the answer's beginning where that comes first.

use http::StatusCode;
use kv_index::Prediction;

use crate::dispatch::attempt_error::{AttemptError, leaves_no_prompt};
use crate::dispatch::speculative_insert;
use crate::dispatch::split::pair::PairAttempt;

/// Prediction of a prompt at the decode worker of one attempt.
#[derive(Debug, Default)]
pub(super) struct DecodePrediction {
    is_made: bool,
    /// `None` also where the pool predicts nothing.
    prediction: Option<Prediction>,
}

impl DecodePrediction {
    /// Records that the prompt is computed, so that the decode worker takes it over.
    pub(super) fn computed(&mut self, attempt: &PairAttempt<'_>) {
        if std::mem::replace(&mut self.is_made, true) {
            return;
        }
        let (sources, worker) = (&attempt.dispatcher.sources, attempt.worker(attempt.decode));
        self.prediction = speculative_insert::expect(sources, attempt.request, worker);
    }

    /// Records the status of the decode worker's answer.
    pub(super) fn answered(&mut self, attempt: &PairAttempt<'_>, status: StatusCode) {
        if leaves_no_prompt(status) {
            self.lost(attempt);
        } else if status.is_success() {
            self.computed(attempt);
        }
    }

    /// Records the failure of the decode worker.
    pub(super) fn failed(&mut self, attempt: &PairAttempt<'_>, error: &AttemptError) {
        if error.left_no_prompt() || error.may_lack_the_prompt() {
            self.lost(attempt);
        }
    }

    /// Takes the prediction back: the decode worker did not get the prompt.
    pub(super) fn lost(&mut self, attempt: &PairAttempt<'_>) {
        if let Some(prediction) = self.prediction.take() {
            speculative_insert::retract(&attempt.dispatcher.sources, attempt.request, prediction);
        }
    }
}
