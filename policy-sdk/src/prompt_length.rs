//! Prompt length in tokens, known or estimated.

use crate::call::{Call, OptionalNumber};
use crate::plan::{Plan, RequestNumber};

/// Bytes of body per token, for prompts whose tokens are unknown; the router's loads use the same value.
const BYTES_PER_TOKEN: f64 = 4.0;

/// Numbers of the request that yield its prompt length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PromptLength {
    tokens: RequestNumber,
    bytes: RequestNumber,
}

impl PromptLength {
    pub(crate) fn new(plan: &mut Plan) -> Self {
        Self {
            tokens: plan.request("request.prompt-tokens"),
            bytes: plan.request("request.body-bytes"),
        }
    }

    /// Returns the prompt length in tokens.
    pub(crate) fn of(self, call: &Call<'_>) -> f64 {
        let estimate = call.number(self.bytes).known_or(0.0) / BYTES_PER_TOKEN;
        call.number(self.tokens).known_or(estimate)
    }
}
