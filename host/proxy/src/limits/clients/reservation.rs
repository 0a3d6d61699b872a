//! Rate-limit reservation of one request, from its key to the end of its response.
//!
//! Tokens are reserved by an estimate before any work. The reservation is adjusted when the prompt's length is known.
//! At the end it is settled by the worker's reported usage, or by the observed length of the response.

use std::mem::take;
use std::sync::Arc;

use http::StatusCode;
use inference_api::{Peek, Tail};

use super::limits::Taken;
use super::principal::Principal;
use crate::base::label::Outcome;
use crate::base::reply::{Limited, Refusal};

/// Maximum of tokens that a response's `usage` may state. Higher values are ignored, because the client would be
/// charged for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsageBound {
    prompt: u64,
    /// `max_tokens` of the body, for each of its `n` choices; 0 if it sets none.
    output: u64,
}

/// Tokens without a byte in the body or response: a chat template's, an image's behind a URL, hidden reasoning.
const UNSEEN_TOKENS: u64 = 64 << 10;

impl UsageBound {
    /// Derives the bound: a token has at least one byte of the body.
    pub(crate) fn of(peek: &Peek<'_>, body: &[u8]) -> Self {
        Self {
            prompt: (body.len() as u64).saturating_add(UNSEEN_TOKENS),
            output: peek.max_tokens.unwrap_or(0).saturating_mul(peek.answers()),
        }
    }

    /// Returns the bound for an answer to a request without a prompt.
    fn of_output() -> Self {
        Self {
            prompt: u64::MAX,
            output: 0,
        }
    }

    /// Returns `true` if the usage stated in `tail` is plausible for the response's length.
    fn allows(self, tail: &Tail) -> bool {
        tail.prompt_tokens()
            .is_none_or(|reported| reported <= self.prompt)
            && self.allows_output(tail.tokens_so_far(), tail)
    }

    /// Returns `true` if so many output tokens are plausible for the response's length.
    fn allows_output(self, tokens: u64, tail: &Tail) -> bool {
        tokens <= self.output.max(tail.length().saturating_add(UNSEEN_TOKENS))
    }
}

/// Rate-limit guard of a request in progress. Dropping it ends the request.
#[derive(Debug)]
pub(crate) struct RateLimitGuard {
    client: Arc<Principal>,
    /// Tokens of its prompt, as far as known.
    prompt: u64,
    /// Reservation in the client's token bucket.
    taken: Taken,
    /// Reservation in the client's request bucket.
    place: Taken,
    /// `true` if a worker served the request; `None` before any response.
    served: Option<bool>,
    /// Tokens of the response so far.
    output: u64,
    /// `true` once the request was sent to a worker.
    is_sent: bool,
    bound: Option<UsageBound>,
    /// `true` if its worker stated an implausible usage.
    is_implausible: bool,
}

impl RateLimitGuard {
    pub(super) fn new(client: Arc<Principal>) -> Self {
        Self {
            client,
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

    /// Stores the reservation in the client's request bucket.
    pub(super) fn took_request(&mut self, place: Taken) {
        self.place = place;
    }

    /// Returns the client.
    pub(crate) fn client(&self) -> &Arc<Principal> {
        &self.client
    }

    /// Checks that the client may use the model.
    pub(crate) fn check_model(&self, model: &str) -> Result<(), Refusal> {
        if self.client.may_use(model) {
            return Ok(());
        }
        self.client.ledger.metrics.refused.model.inc();
        // The same refusal as for an unknown model, so that other clients' models are not revealed.
        Err(Refusal::not_served(model))
    }

    /// Reserves the estimated tokens of the prompt. The response's stated usage is limited to `bound`.
    pub(crate) fn claim(&mut self, tokens: u64, bound: UsageBound) -> Result<(), Limited> {
        self.prompt = tokens;
        self.bound = Some(bound);
        let Some(rate) = self.client.tokens() else {
            return Ok(());
        };
        let (ledger, now) = (&self.client.ledger, self.client.now());
        match ledger.tokens.take(rate, tokens, now) {
            Ok(taken) => self.taken = taken,
            Err(wait) => {
                ledger.metrics.refused.tokens.inc();
                // The request was not used.
                if let Some(requests) = self.client.requests() {
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

    /// Adjusts the reservation to the known length of the prompt.
    pub(crate) fn reconcile(&mut self, tokens: u64) {
        self.prompt = tokens;
        self.settle(tokens);
    }

    /// Sets the total usage.
    fn settle(&mut self, tokens: u64) {
        if let Some(rate) = self.client.tokens() {
            let bucket = &self.client.ledger.tokens;
            bucket.settle(&mut self.taken, rate, tokens, self.client.now());
        }
    }

    /// Records the status of a worker's response.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.served = Some(status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS);
    }

    /// Records that the request was sent to a worker.
    pub(crate) fn sent(&mut self) {
        self.is_sent = true;
    }

    /// Updates the usage by the response so far. A stated usage only raises it: the response may repeat numbers of its
    /// client before it states the worker's.
    pub(crate) fn seen(&mut self, tail: &Tail) {
        if !self.is_plausible(tail) {
            return;
        }
        self.output = tail.tokens_so_far();
        self.prompt = self.prompt.max(tail.prompt_tokens().unwrap_or(0));
    }

    /// Returns the output tokens that are charged so far.
    pub(crate) fn output(&self) -> u64 {
        self.output
    }

    /// Sets the usage to that of a response that was read to its end.
    pub(crate) fn read(&mut self, tail: &Tail) {
        if !self.is_plausible(tail) {
            return;
        }
        self.output = tail.tokens();
        self.prompt = tail.prompt_tokens().unwrap_or(self.prompt);
    }

    /// Sets the usage to the `new` output tokens of an answer by its id. The prompt was charged when the response was
    /// made.
    pub(crate) fn read_output(&mut self, tail: &Tail, new: u64) {
        self.bound = Some(UsageBound::of_output());
        // An implausible usage leaves the estimate of the whole answer, of which a part may be charged already.
        self.output = match self.is_plausible(tail) {
            true => new,
            false => self.output.min(new),
        };
        self.served = Some(true);
    }

    /// Raises the output to that which answers by the response's id had. Returns `false` if it is not plausible.
    pub(crate) fn raise_output(&mut self, known: u64, tail: &Tail) -> bool {
        let is_plausible = self.bound.is_none_or(|bound| bound.allows_output(known, tail));
        if is_plausible {
            self.output = self.output.max(known);
        }
        is_plausible
    }

    /// Returns the output of an answer by its id, which has not been read to its end.
    pub(crate) fn output_by_id(&mut self, tail: &Tail) -> u64 {
        self.bound = Some(UsageBound::of_output());
        match self.is_plausible(tail) {
            true => tail.tokens_so_far(),
            false => tail.counted_tokens(),
        }
    }

    /// Sets the usage to the `new` output tokens of an answer by its id, which has not been read to its end.
    pub(crate) fn charge_part(&mut self, new: u64) {
        self.output = new;
        self.served = Some(true);
    }

    /// Returns `true` if the stated usage is plausible. Otherwise the output is counted.
    fn is_plausible(&mut self, tail: &Tail) -> bool {
        if self.bound.is_none_or(|bound| bound.allows(tail)) {
            return true;
        }
        if !std::mem::replace(&mut self.is_implausible, true) {
            self.client.ledger.metrics.implausible.inc();
        }
        self.output = tail.counted_tokens();
        false
    }

    /// Ends the request. After a client's departure or a timeout, the prompt counts as used, because a worker has read
    /// it.
    pub(crate) fn end(mut self, outcome: Outcome) {
        let is_worked_on = match outcome {
            Outcome::ClientLeft => true,
            Outcome::RequestTimeout | Outcome::FirstByteTimeout | Outcome::IdleTimeout => self.is_sent,
            _ => false,
        };
        if is_worked_on {
            self.served.get_or_insert(true);
        }
    }
}

impl Drop for RateLimitGuard {
    fn drop(&mut self) {
        let ledger = Arc::clone(&self.client.ledger);
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
