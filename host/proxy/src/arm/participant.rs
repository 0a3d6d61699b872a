//! One request's part in a trial: what is noted on its way, and told at its end.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use inference_api::Tail;

use crate::arm::evidence::Ended;
use crate::arm::trial::{Place, Trial};
use crate::label::Outcome;

/// One request of an arm.
#[derive(Debug)]
pub(crate) struct Participant {
    trial: Arc<Trial>,
    place: Place,
    /// Whether the client asked for a stream.
    streams: bool,
    /// The answer's status is one that counts as failed.
    refused: bool,
    /// After the request's head.
    first_token: Option<Duration>,
    /// Of the answer's body.
    chunks: u64,
    output_tokens: Option<u64>,
    cached: Option<(u64, u64)>,
}

impl Participant {
    pub(crate) fn new(trial: Arc<Trial>, place: Place, streams: bool) -> Self {
        Self {
            trial,
            place,
            streams,
            refused: false,
            first_token: None,
            chunks: 0,
            output_tokens: None,
            cached: None,
        }
    }

    /// The client is answered with that status. As where legs fail over, too busy and broken count as failed; other errors tell
    /// the client something of its request.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.refused = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    }

    /// The first byte of a streamed answer came, so long after the request's head.
    pub(crate) fn first_token(&mut self, after: Duration) {
        self.first_token = Some(after);
    }

    /// A piece of the answer passed.
    pub(crate) fn chunk(&mut self) {
        self.chunks += 1;
    }

    /// The answer was read to its end.
    pub(crate) fn read(&mut self, tail: &Tail) {
        self.output_tokens = tail.output_tokens();
        self.cached = tail.prompt_tokens().zip(tail.cached_tokens());
    }

    /// It is over, so long after the request's head.
    pub(crate) fn end(self, outcome: Outcome, after: Duration) {
        let first = self.first_token.map(|first| first.as_secs_f64());
        let left_waiting = outcome == Outcome::ClientLeft && self.streams && first.is_none();
        let failed = match outcome {
            Outcome::Complete => Some(self.refused),
            Outcome::ClientLeft
            | Outcome::ShutDown
            | Outcome::Invalid
            | Outcome::Unauthorized
            | Outcome::Limited
            | Outcome::BodiesFull => None,
            Outcome::UpstreamError
            | Outcome::IdleTimeout
            | Outcome::FirstByteTimeout
            | Outcome::Unreachable
            | Outcome::Rejected
            | Outcome::QueueFull
            | Outcome::QueueTimeout
            | Outcome::Shed
            | Outcome::RequestTimeout
            | Outcome::TooSlow => Some(true),
        };
        let ended = Ended {
            ttft: first.or_else(|| left_waiting.then_some(after.as_secs_f64())),
            failed,
            between: self.between(outcome, after),
            cached: self.cached,
        };
        self.trial.ended(self.place, outcome, first, &ended);
    }

    /// Seconds between two tokens: from the first byte to the end, over all tokens but the first. Where the usage does not tell
    /// how many there are, each piece of the answer as it was read counts for one: engines send one event a token.
    fn between(&self, outcome: Outcome, after: Duration) -> Option<f64> {
        let first = self.first_token.filter(|_| outcome == Outcome::Complete)?;
        let more = self.output_tokens.unwrap_or(self.chunks).checked_sub(1)?;
        (more > 0).then(|| after.saturating_sub(first).as_secs_f64() / more as f64)
    }
}
