//! Numbers of the workers that the cost of a request depends on, read together.

use conductor_policy_sdk::{Columns, Number, NumberMask, Numbers, Plan, QueuedLoad};

/// Time of a prompt token on a worker of weight 1 while the router has not measured it, in milliseconds.
const USUAL_TOKEN_MS: f64 = 0.1;

/// Columns of the numbers.
#[derive(Debug)]
pub(crate) struct WorkerColumns {
    load: Columns<7>,
    matches: Columns<3>,
}

/// Numbers of one worker, or of two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerNumbers<N> {
    pub(crate) load: QueuedLoad<N>,
    pub(crate) weight: N,
    /// Measured mean time between tokens of the worker's answers, in milliseconds.
    pub(crate) between_tokens_ms: N,
    measured_token_ms: N,
    predicted_prefill_ms: N,
}

/// Times of a prompt on one worker, or on two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PromptTimes<N> {
    /// Time of a token.
    pub(crate) token_ms: N,
    /// Prefill time of the prompt, without waiting.
    pub(crate) prefill_ms: N,
}

impl WorkerColumns {
    pub(crate) fn new(plan: &mut Plan) -> Self {
        Self {
            load: plan.columns([
                "load.prefill-tokens",
                "load.requests",
                "load.decoding",
                "worker.weight",
                "tbt.ewma-ms",
                "cost.token-ms",
                "cost.prefill-ms",
            ]),
            matches: plan.columns(["prefix.device-tokens", "prefix.host-tokens", "prefix.any-tokens"]),
        }
    }

    /// Reads the numbers.
    #[inline(always)]
    pub(crate) fn of<R: Numbers>(&self, row: &R) -> WorkerNumbers<R::Number> {
        let [
            tokens,
            requests,
            decoding,
            weight,
            between_tokens_ms,
            measured_token_ms,
            predicted_prefill_ms,
        ] = row.block(&self.load);
        WorkerNumbers {
            load: QueuedLoad {
                tokens,
                requests,
                decoding,
            },
            weight,
            between_tokens_ms,
            measured_token_ms,
            predicted_prefill_ms,
        }
    }

    /// Reads the matches of the prompt on the device, in host memory or faster, and on any tier.
    #[inline(always)]
    pub(crate) fn matches<R: Numbers>(&self, row: &R) -> [R::Number; 3] {
        row.block(&self.matches)
    }
}

impl<N: Number> WorkerNumbers<N> {
    /// Returns true if the router has measured the worker, so that its times are no guess.
    #[inline(always)]
    pub(crate) fn is_measured(&self) -> N::Mask {
        self.measured_token_ms.exceeds(N::from(0.0))
    }

    /// Divides by the worker's weight. Most weights are 1.
    #[inline(always)]
    pub(crate) fn by_weight(&self, number: N) -> N {
        match self.weight.equals(N::from(1.0)).all() {
            true => number,
            false => quotient(number, self.weight),
        }
    }

    /// Returns the times of a prompt with so many tokens to compute.
    #[inline(always)]
    pub(crate) fn times(&self, uncached: N) -> PromptTimes<N> {
        let token_ms = self.token_ms();
        let predicted = self.predicted_prefill_ms;
        let is_predicted = predicted.reaches(N::from(0.0));
        PromptTimes {
            token_ms,
            prefill_ms: N::select(is_predicted, predicted, uncached * token_ms),
        }
    }

    /// Returns the time of a token of a prompt.
    #[inline(always)]
    pub(crate) fn token_ms(&self) -> N {
        let usual = self.by_weight(N::from(USUAL_TOKEN_MS));
        N::select(self.is_measured(), self.measured_token_ms, usual)
    }
}

/// Divides. It is cold, so that the compiler does not divide where the weight is 1.
#[cold]
fn quotient<N: Number>(dividend: N, divisor: N) -> N {
    dividend / divisor
}
