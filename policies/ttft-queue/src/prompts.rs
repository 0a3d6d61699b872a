//! Prompts queued at a worker, and the one that runs beside its answers.

use conductor_policy_sdk::{Column, Number, Numbers, Plan, Row};

/// Least mean time between tokens of a worker that writes answers, in milliseconds. A worker that sends each answer in
/// one piece has a mean that is positive and almost 0.
const WRITES_MS: f64 = 0.5;
/// Share of a running prompt that is taken as computed. Its progress is not known.
const COMPUTED_SHARE: f64 = 0.3;
/// Greatest number of tokens of a short prompt: those that an engine computes in one step.
const SHORT_TOKENS: f64 = 8_192.0;
/// Least number of tokens of a long prompt: two such steps.
const LONG_TOKENS: f64 = 2.0 * SHORT_TOKENS;

/// Columns of the prompts without a first token.
#[derive(Debug)]
pub(crate) struct QueuedPrompts {
    tokens: Column,
    requests: Column,
    decoding: Column,
    between_tokens_ms: Column,
}

impl QueuedPrompts {
    pub(crate) fn new(plan: &mut Plan) -> Self {
        Self {
            tokens: plan.column("load.prefill-tokens"),
            requests: plan.column("load.requests"),
            decoding: plan.column("load.decoding"),
            between_tokens_ms: plan.column("tbt.ewma-ms"),
        }
    }

    /// Returns the tokens of all of them.
    #[inline(always)]
    pub(crate) fn tokens<R: Numbers>(&self, row: &R) -> R::Number {
        row.number(self.tokens)
    }

    /// Returns the tokens of the running prompt, taken as the mean of all; 0 on a worker that has written no answers.
    #[inline(always)]
    pub(crate) fn running<R: Numbers>(&self, row: &R) -> R::Number {
        let zero = R::Number::from(0.0);
        let prompts = self.prompts(row);
        let runs = self.writes(row) & prompts.exceeds(zero);
        R::Number::select(runs, self.tokens(row) / prompts, zero)
    }

    /// Returns the requests in flight there.
    #[inline(always)]
    pub(crate) fn requests<R: Numbers>(&self, row: &R) -> R::Number {
        row.number(self.requests)
    }

    /// Returns true if the worker writes answers.
    #[inline(always)]
    pub(crate) fn writes<R: Numbers>(&self, row: &R) -> <R::Number as Number>::Mask {
        row.number(self.between_tokens_ms).exceeds(WRITES_MS.into())
    }

    /// Returns the tokens of the running prompt that are taken as computed.
    #[inline(always)]
    pub(crate) fn computed<R: Numbers>(&self, row: &R) -> R::Number {
        R::Number::from(COMPUTED_SHARE) * self.running(row)
    }

    /// Returns true if the prompt is short and only a long one runs there: it shares the last step of the long one, which
    /// otherwise has room left. A step of its own would stall the answer of the long one.
    pub(crate) fn shares_step(&self, row: &Row<'_>, uncached: f64) -> bool {
        uncached < SHORT_TOKENS && self.prompts(row) <= 1.0 && self.running(row) > LONG_TOKENS
    }

    /// Returns their number.
    #[inline(always)]
    fn prompts<R: Numbers>(&self, row: &R) -> R::Number {
        row.number(self.requests) - row.number(self.decoding)
    }
}
