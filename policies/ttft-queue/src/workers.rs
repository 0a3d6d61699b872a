//! Numbers of the workers that the cost of a request depends on, read together.

use conductor_policy_sdk::{Columns, Number, Numbers, Plan, QueuedLoad};

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

    /// Returns the time of a token of a prompt.
    #[inline(always)]
    pub(crate) fn token_ms(&self) -> N {
        let usual = N::from(USUAL_TOKEN_MS) / self.weight;
        N::select(self.is_measured(), self.measured_token_ms, usual)
    }

    /// Returns the prefill time of the prompt, without waiting.
    #[inline(always)]
    pub(crate) fn prefill_ms(&self, uncached: N) -> N {
        let predicted = self.predicted_prefill_ms;
        N::select(
            predicted.reaches(N::from(0.0)),
            predicted,
            uncached * self.token_ms(),
        )
    }
}
