//! One request of a client, from its key to the end of its answer: what it uses of the client's limits.
//!
//! Its tokens are claimed by an estimate before anybody works on it, put right when the prompt's length is known, and
//! settled when it is over: by what the worker says it used, or by what was seen of the answer.

use std::mem::take;
use std::sync::Arc;

use http::StatusCode;
use inference_api::{Peek, Tail};

use super::caller::Principal;
use super::limits::Taken;
use crate::base::label::Outcome;
use crate::base::reply::{Limited, Refusal};

/// Most tokens that the `usage` of a request's answer can state: a worker that states more is not believed, since its client
/// would pay for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsageBound {
    prompt: u64,
    /// `max_tokens` of the body for each of its `n` answers; 0 where it sets none.
    output: u64,
}

/// Tokens that are in no byte of a body or an answer: a chat template's, an image's behind a URL, hidden reasoning.
const UNSEEN_TOKENS: u64 = 64 << 10;

impl UsageBound {
    /// A token has at least one byte of the body.
    pub(crate) fn of(peek: &Peek<'_>, body: &[u8]) -> Self {
        Self {
            prompt: (body.len() as u64).saturating_add(UNSEEN_TOKENS),
            output: peek.max_tokens.unwrap_or(0).saturating_mul(peek.answers()),
        }
    }

    /// Whether an answer of so much as is in `tail` can have used what it states.
    fn allows(self, tail: &Tail) -> bool {
        let output = self.output.max(tail.length().saturating_add(UNSEEN_TOKENS));
        tail.prompt_tokens().is_none_or(|told| told <= self.prompt) && tail.tokens_so_far() <= output
    }
}

/// A request under way. Dropped, it is over.
#[derive(Debug)]
pub(crate) struct RateLimitGuard {
    caller: Arc<Principal>,
    /// Tokens of its prompt, as far as they are known.
    prompt: u64,
    /// Of its client's tokens.
    taken: Taken,
    /// Of its client's requests.
    place: Taken,
    /// Whether a worker did what was asked; none where nobody answered yet.
    served: Option<bool>,
    /// Tokens of the answer so far.
    output: u64,
    /// Whether it is at a worker, or was.
    is_sent: bool,
    bound: Option<UsageBound>,
    /// Whether its worker stated more than there can be.
    is_implausible: bool,
}

impl RateLimitGuard {
    pub(super) fn new(caller: Arc<Principal>) -> Self {
        Self {
            caller,
            prompt: 0,
            taken: Taken::default(),
            place: Taken::default(),
            served: None,
            output: 0,
            is_sent: false,
            bound: None,
            is_implausible: false,
        }
    }

    /// It is one of the client's requests.
    pub(super) fn took_place(&mut self, place: Taken) {
        self.place = place;
    }

    /// Whose it is.
    pub(crate) fn caller(&self) -> &Arc<Principal> {
        &self.caller
    }

    /// Whether that model exists for the client.
    pub(crate) fn check_model(&self, model: &str) -> Result<(), Refusal> {
        if self.caller.may_ask_for(model) {
            return Ok(());
        }
        self.caller.ledger.metrics.refused.model.inc();
        // The same as for a model that nobody serves: what others have is not told.
        Err(Refusal::not_served(model))
    }

    /// Takes what the prompt is estimated to have; its answer states no more than `bound`.
    pub(crate) fn claim(&mut self, tokens: u64, bound: UsageBound) -> Result<(), Limited> {
        self.prompt = tokens;
        self.bound = Some(bound);
        let Some(rate) = self.caller.tokens else {
            return Ok(());
        };
        let (ledger, now) = (&self.caller.ledger, self.caller.now());
        match ledger.tokens.take(rate, tokens, now) {
            Ok(taken) => self.taken = taken,
            Err(wait) => {
                ledger.metrics.refused.tokens.inc();
                // It was not used.
                if let Some(requests) = self.caller.requests {
                    ledger.requests.give_back(take(&mut self.place), requests, now);
                }
                return Err(Limited::Tokens {
                    limit: rate.per_minute(),
                    wait,
                });
            }
        }
        Ok(())
    }

    /// The prompt's length is known.
    pub(crate) fn reconcile(&mut self, tokens: u64) {
        self.prompt = tokens;
        self.settle(tokens);
    }

    /// So much is used in all.
    fn settle(&mut self, tokens: u64) {
        if let Some(rate) = self.caller.tokens {
            let bucket = &self.caller.ledger.tokens;
            bucket.settle(&mut self.taken, rate, tokens, self.caller.now());
        }
    }

    /// A worker answers with that status.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.served = Some(status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS);
    }

    /// A worker was asked.
    pub(crate) fn sent(&mut self) {
        self.is_sent = true;
    }

    /// So much of the answer passed by now.
    pub(crate) fn seen(&mut self, tail: &Tail) {
        if self.bound.is_some_and(|bound| !bound.allows(tail)) {
            if !std::mem::replace(&mut self.is_implausible, true) {
                self.caller.ledger.metrics.implausible.inc();
            }
            self.output = tail.counted_tokens();
            return;
        }
        self.output = tail.tokens_so_far();
        if let Some(prompt) = tail.prompt_tokens() {
            self.prompt = prompt;
        }
    }

    /// It is over. Who leaves before the answer begins, or gives it no time, has had a worker read the prompt all the same.
    pub(crate) fn end(mut self, outcome: Outcome) {
        let is_worked_on = match outcome {
            Outcome::ClientLeft => true,
            Outcome::RequestTimeout | Outcome::IdleTimeout => self.is_sent,
            _ => false,
        };
        if is_worked_on {
            self.served.get_or_insert(true);
        }
    }
}

impl Drop for RateLimitGuard {
    fn drop(&mut self) {
        let ledger = Arc::clone(&self.caller.ledger);
        ledger.end();
        if self.served != Some(true) {
            return self.settle(0);
        }
        let (prompt, output) = (self.prompt, self.output);
        self.settle(prompt.saturating_add(output));
        ledger.metrics.prompt_tokens.inc_by(prompt);
        ledger.metrics.output_tokens.inc_by(output);
    }
}
