//! How long a prompt is, known or estimated.

use crate::call::{Call, Known};
use crate::plan::{Plan, RequestNumber};

/// Bytes of a request's body for each token, where its tokens are not known; the router's own loads use the same.
const BYTES_PER_TOKEN: f64 = 4.0;

/// Where the router lays out what tells a prompt's length.
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

    /// In tokens.
    pub(crate) fn of(self, call: &Call<'_>) -> f64 {
        let estimate = call.number(self.bytes).known_or(0.0) / BYTES_PER_TOKEN;
        call.number(self.tokens).known_or(estimate)
    }
}
