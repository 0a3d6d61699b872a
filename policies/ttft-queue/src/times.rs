//! Predicted times of a request on a candidate, and its slack: the time for which it can wait and still be in time.

use conductor_policy_sdk::{Call, Column, Number, OptionalNumber, Plan, RequestNumber, Row};

use crate::workers::{PromptTimes, WorkerNumbers};

/// Least and greatest time of a dispatch, in milliseconds.
const DISPATCH_MS: [f64; 2] = [20.0, 500.0];
/// The usual dispatch of a worker that is not measured, in milliseconds.
const USUAL_DISPATCH_MS: f64 = 50.0;

/// Steps of answers for which a worker may have prompts queued besides: a prompt that comes after a step has begun
/// waits for its end, and with one prompt at a time the worker would lose a step for each.
const STEPS_AHEAD: f64 = 3.0;

/// Columns of the times.
#[derive(Debug)]
pub(crate) struct TimeColumns {
    waited_ms: RequestNumber,
    /// Target of the request's route or pool.
    route_target_ms: RequestNumber,
    request_ms: Column,
    tbt_ms: Column,
    /// Target of the first token where the request has none, in milliseconds.
    usual_target_ms: f64,
}

impl TimeColumns {
    pub(crate) fn new(plan: &mut Plan, usual_target_ms: f64) -> Self {
        Self {
            waited_ms: plan.request("request.waited-ms"),
            route_target_ms: plan.request("request.ttft-target-ms"),
            request_ms: plan.column("cost.request-ms"),
            tbt_ms: plan.column("cost.tbt-ms"),
            usual_target_ms,
        }
    }

    /// Returns the time that is left of a request's target.
    pub(crate) fn left_ms(&self, call: &Call<'_>) -> f64 {
        self.target_ms(call) - call.number(self.waited_ms).known_or(0.0)
    }

    /// Returns the target of a request's first token.
    pub(crate) fn target_ms(&self, call: &Call<'_>) -> f64 {
        call.number(self.route_target_ms).known_or(self.usual_target_ms)
    }

    /// Returns true if the worker has no more queued than it computes while a dispatch takes, or in a few steps of its
    /// answers: the next request arrives there just in time.
    pub(crate) fn is_free(&self, row: &Row<'_>, worker: &WorkerNumbers<f64>) -> bool {
        let [least, most] = DISPATCH_MS;
        let measured = row.get(self.request_ms);
        let dispatch_ms = if measured >= 0.0 {
            measured.clamp(least, most)
        } else {
            USUAL_DISPATCH_MS
        };
        let queued_ms = worker.load.tokens * worker.token_ms();
        queued_ms <= dispatch_ms + self.steps_ahead_ms(row, worker)
    }

    /// Returns the time of the steps for which prompts are queued ahead; 0 on a worker without answers.
    fn steps_ahead_ms(&self, row: &Row<'_>, worker: &WorkerNumbers<f64>) -> f64 {
        let step_ms = self.between_tokens_ms(row);
        match worker.load.decoding > 0.0 && step_ms > 0.0 {
            true => STEPS_AHEAD * step_ms,
            false => 0.0,
        }
    }

    /// Returns the predicted time between tokens with this request; NaN if it is not known.
    pub(crate) fn between_tokens_ms(&self, row: &Row<'_>) -> f64 {
        row.get(self.tbt_ms)
    }
}

impl<N: Number> WorkerNumbers<N> {
    /// Returns the slack of a request: the time that is left of its target, less the prompts that are queued there and
    /// its own. The prompt that runs beside answers is left out: it may be almost computed, and a request that left its
    /// worker for that would compute its cached prefix again.
    #[inline(always)]
    pub(crate) fn slack_ms(&self, left_ms: f64, times: PromptTimes<N>) -> N {
        let ahead = self.load.tokens - self.running();
        N::from(left_ms) - ahead * times.token_ms - times.prefill_ms
    }
}
