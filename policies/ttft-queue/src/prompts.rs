//! Prompts queued at a worker, and the one that runs beside its answers.

use conductor_policy_sdk::{Number, NumberMask};

use crate::workers::WorkerNumbers;

/// Least mean time between tokens of a worker that writes answers, in milliseconds. A worker that sends each answer in
/// one piece has a mean that is positive and almost 0.
const WRITES_MS: f64 = 0.5;
/// Share of a running prompt that is taken as computed. Its progress is not known.
const COMPUTED_SHARE: f64 = 0.3;
/// Greatest number of tokens of a short prompt: those that an engine computes in one step.
const SHORT_TOKENS: f64 = 8_192.0;
/// Least number of tokens of a long prompt: two such steps.
const LONG_TOKENS: f64 = 2.0 * SHORT_TOKENS;

impl<N: Number> WorkerNumbers<N> {
    /// Returns the tokens of the running prompt, taken as the mean of all; 0 on a worker that has written no answers.
    #[inline(always)]
    pub(crate) fn running(&self) -> N {
        let prompts = self.prompts();
        let runs = self.writes() & prompts.exceeds(N::from(0.0));
        match runs.any() {
            true => N::select(runs, self.load.tokens / prompts, N::from(0.0)),
            false => N::from(0.0),
        }
    }

    /// Returns true if the worker writes answers.
    #[inline(always)]
    pub(crate) fn writes(&self) -> N::Mask {
        self.between_tokens_ms.exceeds(N::from(WRITES_MS))
    }

    /// Returns the tokens of the running prompt that are taken as computed.
    #[inline(always)]
    pub(crate) fn computed(&self) -> N {
        N::from(COMPUTED_SHARE) * self.running()
    }

    /// Returns the number of prompts without a first token.
    #[inline(always)]
    fn prompts(&self) -> N {
        self.load.requests - self.load.decoding
    }
}

impl WorkerNumbers<f64> {
    /// Returns true if the prompt is short and only a long one runs there: it shares the last step of the long one,
    /// which otherwise has room left. A step of its own would stall the answer of the long one.
    pub(crate) fn shares_step(&self, uncached: f64) -> bool {
        uncached < SHORT_TOKENS && self.prompts() <= 1.0 && self.running() > LONG_TOKENS
    }
}
