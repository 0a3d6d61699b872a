//! Predicted times of a request on a candidate, and its slack: the time for which it can wait and still be in time.

use conductor_policy_sdk::{Call, Column, Number, Numbers, OptionalNumber, Plan, RequestNumber, Row};

use crate::prompts::QueuedPrompts;

/// Time of a prompt token on a worker of weight 1 while the router has not measured it, in milliseconds.
const USUAL_TOKEN_MS: f64 = 0.1;
/// Least and greatest time of a dispatch, in milliseconds.
const DISPATCH_MS: [f64; 2] = [20.0, 500.0];
/// The usual dispatch of a worker that is not measured, in milliseconds.
const USUAL_DISPATCH_MS: f64 = 50.0;

/// Steps of answers for which a worker may have prompts queued besides: a prompt that comes after a step has begun waits
/// for its end, and with one prompt at a time the worker would lose a step for each.
const STEPS_AHEAD: f64 = 3.0;

/// Columns of the times.
#[derive(Debug)]
pub(crate) struct TimeColumns {
    waited_ms: RequestNumber,
    /// Target of the request's route or pool.
    route_target_ms: RequestNumber,
    weight: Column,
    pub(crate) prompts: QueuedPrompts,
    token_ms: Column,
    prefill_ms: Column,
    request_ms: Column,
    tbt_ms: Column,
    decoding: Column,
    /// Target of the first token where the request has none, in milliseconds.
    usual_target_ms: f64,
}

impl TimeColumns {
    pub(crate) fn new(plan: &mut Plan, usual_target_ms: f64) -> Self {
        Self {
            waited_ms: plan.request("request.waited-ms"),
            route_target_ms: plan.request("request.ttft-target-ms"),
            weight: plan.column("worker.weight"),
            prompts: QueuedPrompts::new(plan),
            token_ms: plan.column("cost.token-ms"),
            prefill_ms: plan.column("cost.prefill-ms"),
            request_ms: plan.column("cost.request-ms"),
            tbt_ms: plan.column("cost.tbt-ms"),
            decoding: plan.column("load.decoding"),
            usual_target_ms,
        }
    }

    /// Returns the slack of a request: its target less the time that it has waited, the prompts that are queued there
    /// and its own. The prompt that runs beside answers is left out: it may be almost computed, and a request that left
    /// its worker for that would compute its cached prefix again.
    #[inline(always)]
    pub(crate) fn slack_ms<R: Numbers>(&self, call: &Call<'_>, row: &R, uncached: R::Number) -> R::Number {
        let waited_ms = call.number(self.waited_ms).known_or(0.0);
        let left_ms = R::Number::from(self.target_ms(call) - waited_ms);
        let ahead = self.prompts.tokens(row) - self.prompts.running(row);
        left_ms - ahead * self.token_ms(row) - self.prefill_ms(row, uncached)
    }

    /// Returns the target of a request's first token.
    pub(crate) fn target_ms(&self, call: &Call<'_>) -> f64 {
        call.number(self.route_target_ms).known_or(self.usual_target_ms)
    }

    /// Returns true if the router has measured the worker, so that its times are no guess.
    pub(crate) fn is_measured(&self, row: &Row<'_>) -> bool {
        row.get(self.token_ms) > 0.0
    }

    /// Returns true if the worker has no more queued than it computes while a dispatch takes, or in a few steps of its
    /// answers: the next request arrives there just in time.
    pub(crate) fn is_free(&self, row: &Row<'_>) -> bool {
        let [least, most] = DISPATCH_MS;
        let measured = row.get(self.request_ms);
        let dispatch_ms = if measured >= 0.0 {
            measured.clamp(least, most)
        } else {
            USUAL_DISPATCH_MS
        };
        self.queued_ms(row) <= dispatch_ms + self.steps_ahead_ms(row)
    }

    /// Returns the time of the steps for which prompts are queued ahead; 0 on a worker without answers.
    fn steps_ahead_ms(&self, row: &Row<'_>) -> f64 {
        let step_ms = self.between_tokens_ms(row);
        match row.get(self.decoding) > 0.0 && step_ms > 0.0 {
            true => STEPS_AHEAD * step_ms,
            false => 0.0,
        }
    }

    /// Returns the prefill time of the prompt, without waiting.
    #[inline(always)]
    pub(crate) fn prefill_ms<R: Numbers>(&self, row: &R, uncached: R::Number) -> R::Number {
        let predicted = row.number(self.prefill_ms);
        R::Number::select(
            predicted.reaches(0.0.into()),
            predicted,
            uncached * self.token_ms(row),
        )
    }

    /// Returns the predicted time between tokens with this request; NaN if it is not known.
    pub(crate) fn between_tokens_ms(&self, row: &Row<'_>) -> f64 {
        row.get(self.tbt_ms)
    }

    #[inline(always)]
    pub(crate) fn token_ms<R: Numbers>(&self, row: &R) -> R::Number {
        let measured = row.number(self.token_ms);
        let usual = R::Number::from(USUAL_TOKEN_MS) / row.number(self.weight);
        R::Number::select(measured.exceeds(0.0.into()), measured, usual)
    }

    fn queued_ms(&self, row: &Row<'_>) -> f64 {
        self.prompts.tokens(row) * self.token_ms(row)
    }
}
