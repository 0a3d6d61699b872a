//! One request of a client, from its key to the end of its answer: what it uses of the client's limits.
//!
//! Its tokens are claimed by an estimate before anybody works on it, put right when the prompt's length is known, and
//! settled when it is over: by what the worker says it used, or by what was seen of the answer.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use inference_api::Tail;
use thiserror::Error;

use super::caller::Caller;
use crate::label::Outcome;
use crate::reply::Refusal;

/// A client has used what it may.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Limited {
    #[error("the rate limit of {limit} requests a minute is reached: try again in {}", seconds(*wait))]
    Requests { limit: u32, wait: Duration },
    #[error("the rate limit of {limit} tokens a minute is reached: try again in {}", seconds(*wait))]
    Tokens { limit: u32, wait: Duration },
    #[error("{most} requests are being answered, which is the limit: try again when one has ended")]
    Concurrent { most: u32 },
}

/// A request under way. Dropped, it is over.
#[derive(Debug)]
pub(crate) struct Visit {
    caller: Arc<Caller>,
    /// Tokens that were taken for it.
    claimed: u64,
    /// Whether a worker did what was asked; none where nobody answered yet.
    served: Option<bool>,
    /// Events of a streamed answer: about a token each.
    events: u64,
    /// Tokens of the prompt and of the answer, as the worker told.
    told: (Option<u64>, Option<u64>),
}

impl Visit {
    pub(super) fn new(caller: Arc<Caller>) -> Self {
        Self {
            caller,
            claimed: 0,
            served: None,
            events: 0,
            told: (None, None),
        }
    }

    /// Whose it is.
    pub(crate) fn caller(&self) -> &Arc<Caller> {
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

    /// Takes what the prompt is estimated to have.
    pub(crate) fn claim(&mut self, tokens: u64) -> Result<(), Limited> {
        if let Some(rate) = self.caller.tokens {
            let taken = self.caller.ledger.tokens.take(rate, tokens, self.caller.now());
            taken.map_err(|wait| {
                let ledger = &self.caller.ledger;
                ledger.metrics.refused.tokens.inc();
                // It was not used.
                if let Some(requests) = self.caller.requests {
                    ledger.requests.give_back(requests, 1);
                }
                Limited::Tokens {
                    limit: rate.per_minute(),
                    wait,
                }
            })?;
        }
        self.claimed = tokens;
        Ok(())
    }

    /// The prompt's length is known.
    pub(crate) fn put_right(&mut self, tokens: u64) {
        if let Some(rate) = self.caller.tokens {
            let bucket = &self.caller.ledger.tokens;
            if tokens > self.claimed {
                bucket.charge(rate, tokens - self.claimed, self.caller.now());
            } else {
                bucket.give_back(rate, self.claimed - tokens);
            }
        }
        self.claimed = tokens;
    }

    /// A worker answers with that status.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.served = Some(status.is_success());
    }

    /// A piece of a streamed answer passed.
    pub(crate) fn chunk(&mut self, data: &[u8]) {
        let ends = data.windows(2).filter(|pair| pair == b"\n\n");
        self.events += ends.count() as u64;
    }

    /// The answer was read to its end.
    pub(crate) fn read(&mut self, tail: &Tail) {
        self.told = (tail.prompt_tokens(), tail.output_tokens());
    }

    /// It is over. Who leaves before the answer begins has had a worker read the prompt all the same.
    pub(crate) fn end(mut self, outcome: Outcome) {
        if outcome == Outcome::ClientLeft {
            self.served.get_or_insert(true);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let ledger = Arc::clone(&self.caller.ledger);
        ledger.end();
        if self.served != Some(true) {
            return self.put_right(0);
        }
        let prompt = self.told.0.unwrap_or(self.claimed);
        let output = self.told.1.unwrap_or(self.events);
        self.put_right(prompt.saturating_add(output));
        ledger.metrics.prompt_tokens.inc_by(prompt);
        ledger.metrics.output_tokens.inc_by(output);
    }
}

impl Limited {
    /// When the client may come back.
    pub(crate) fn wait(&self) -> Duration {
        match self {
            Self::Requests { wait, .. } | Self::Tokens { wait, .. } => *wait,
            Self::Concurrent { .. } => Duration::from_secs(1),
        }
    }

    /// The error's type, as OpenAI has it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Requests { .. } | Self::Concurrent { .. } => "requests",
            Self::Tokens { .. } => "tokens",
        }
    }
}

/// For people.
fn seconds(wait: Duration) -> String {
    format!("{:.3} s", wait.as_secs_f64())
}
