//! Comparison of a sample of the continued conversations with their whole renderings, on the tokenizer threads.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tokenize::Budget;
use tracing::warn;

use super::{PromptInput, Work, guarded, steps};
use crate::tokens::spec::{Local, Tokenizing};
use crate::tokens::threads::JobOrder;
use crate::tokens::tokenize_request::TokenizeRequest;

/// Time within which a comparison must begin.
const WITHIN: Duration = Duration::from_secs(10);

/// Tokens of a continued conversation.
pub(super) struct SampledTokens {
    pub(super) ids: Vec<u32>,
    /// Date of their rendering.
    pub(super) now: SystemTime,
}

/// Queues a comparison of a continued conversation's tokens. If the queue is full there is none: another one follows.
pub(super) fn check_later(
    local: &Local,
    tokenizing: &Tokenizing,
    request: &TokenizeRequest<'_>,
    sampled: SampledTokens,
) {
    let SampledTokens { ids, now } = sampled;
    let deadline = Instant::now() + WITHIN;
    let work = Work {
        model: Arc::clone(&local.model),
        cache: Arc::clone(&tokenizing.cache),
        longest: tokenizing.limits.longest,
        steps: steps(local.timeout),
        deadline: deadline + local.timeout,
        now,
    };
    let (endpoint, body) = (request.endpoint, Bytes::clone(request.body));
    let (metrics, model) = (
        tokenizing.metrics.clone(),
        request.peek.model.clone().into_owned(),
    );
    let order = JobOrder {
        sender: request.sender.clone(),
        deadline,
    };
    let compare = move || {
        let Ok(peek) = inference_api::peek(endpoint, &body) else {
            return;
        };
        if let Some(is_equal) = work.check(&peek, &ids) {
            metrics.checked(is_equal);
            if !is_equal {
                warn!(
                    model,
                    "a continued conversation has other tokens than its whole rendering: conversations of this chat \
                     template are rendered whole from now on"
                );
            }
        }
    };
    drop(local.threads.do_later(order, compare));
}

impl Work {
    /// Compares the tokens of a chat with those of its whole rendering. Returns `None` if they cannot be compared.
    fn check(&self, peek: &inference_api::Peek<'_>, ids: &[u32]) -> Option<bool> {
        let Some(PromptInput::Chat(chat)) = PromptInput::of(&self.model, peek) else {
            return None;
        };
        let is_over = || Instant::now() >= self.deadline;
        let mut budget = Budget::new(self.steps, &is_over);
        let chat = chat.chat();
        let check = || {
            self.model
                .check_chat(&chat, self.now, ids, &self.cache, &mut budget)
        };
        guarded(check)?.ok()?
    }
}
