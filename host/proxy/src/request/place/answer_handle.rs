//! Handle of a request whose worker has begun to answer: it is given the status, the chunks and the end.
//!
//! It accounts for the request with its client, its worker's health and load, its experiment, and the decision log. Its
//! drop without an end counts as a client that left.

use std::time::Instant;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, StatusCode};
use inference_api::{Endpoint, Tail};
use tracing::warn;

use crate::base::headers::is_event_stream;
use crate::base::label::{FailureKind, Outcome};
use crate::base::request_id::RequestId;
use crate::dispatch::attempt::BegunAttempt;
use crate::dispatch::attempt_error::is_retryable_status;
use crate::observe::stages::RequestStage;
use crate::request::lifecycle::RequestLifecycle;
use crate::request::relay_error::RelayError;
use crate::request::responses::{OutputTokens, ResponseLearner};

/// Handle of an answer.
#[derive(Debug)]
pub struct AnswerHandle {
    /// `None` once the answer has ended. It is dropped before the lifecycle, whose trace has the attempt.
    attempt: Option<BegunAttempt>,
    lifecycle: Box<RequestLifecycle>,
    endpoint: Endpoint,
    member: usize,
    /// `true` if the answer counts as a good one in the worker's health. An answer to a request for a response by its
    /// id does not.
    is_well: bool,
    /// `true` once the first byte of the body has passed.
    has_begun: bool,
    kind: AnswerKind,
    tail: Tail,
    /// Tokens of the answer that the worker's counter has. Those of an answer by id may be from an earlier answer.
    counted_tokens: u64,
    /// Learner of the response's id.
    learner: Option<ResponseLearner>,
}

/// Kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// Server-sent events, which can carry an error.
    Events,
    /// JSON or the like.
    Whole,
    /// Compressed: it can neither be read nor extended.
    Encoded,
}

/// Head of a worker's answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerHead<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    /// Set if the body has a length that was announced.
    pub(crate) has_length: bool,
    /// Time when the request had a connection. `None` where another front end has it.
    pub(crate) connected: Option<Instant>,
}

impl AnswerKind {
    /// Returns the kind of an answer. One with an announced length cannot be extended.
    fn of(head: AnswerHead<'_>) -> Self {
        if head.headers.contains_key(CONTENT_ENCODING) {
            Self::Encoded
        } else if is_event_stream(head.headers) && head.status.is_success() && !head.has_length {
            Self::Events
        } else {
            Self::Whole
        }
    }
}

impl AnswerHandle {
    /// Records the status of the answer.
    pub(crate) fn status(
        mut lifecycle: Box<RequestLifecycle>,
        attempt: BegunAttempt,
        endpoint: Endpoint,
        head: AnswerHead<'_>,
    ) -> Self {
        if head.status.is_server_error() {
            let link = &lifecycle.member(attempt.member).link;
            link.metrics.failed(FailureKind::ServerError);
        }
        if is_retryable_status(head.status) {
            attempt.lease.failed();
        }
        let computes = lifecycle.counts_tokens();
        lifecycle.answered(head.status);
        let now = Instant::now();
        let connected = head.connected.unwrap_or(attempt.dispatched);
        if head.connected.is_some() {
            let connecting = connected.saturating_duration_since(attempt.dispatched);
            lifecycle.took(RequestStage::Connect, connecting);
        }
        lifecycle.took(RequestStage::FirstByte, now.saturating_duration_since(connected));
        Self {
            lifecycle,
            endpoint,
            member: attempt.member,
            attempt: Some(attempt),
            is_well: computes && !head.status.is_server_error(),
            has_begun: false,
            kind: AnswerKind::of(head),
            tail: Tail::default(),
            counted_tokens: 0,
            learner: None,
        }
    }

    /// Attaches the learner of the response's id, where the answer can be read.
    pub(crate) fn learn(&mut self, learner: Option<ResponseLearner>, status: StatusCode) {
        self.learner = learner.filter(|_| self.kind != AnswerKind::Encoded && status.is_success());
    }

    pub(crate) fn kind(&self) -> AnswerKind {
        self.kind
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Returns `true` if the drain period is over, and the answer is to end.
    pub(crate) fn is_cutting(&self) -> bool {
        self.lifecycle.is_cutting()
    }

    /// Returns the number of events that have ended.
    pub(crate) fn events(&self) -> u64 {
        self.tail.events()
    }

    /// Records a chunk of the body.
    pub fn chunk(&mut self, data: &Bytes) {
        let streamed = (self.kind == AnswerKind::Events).then(Instant::now);
        if !self.has_begun {
            self.begun(streamed);
        }
        if let Some(learner) = &mut self.learner {
            learner.push(data);
        }
        if self.kind == AnswerKind::Encoded {
            self.tail.push_unread(data);
        } else {
            self.tail.push(data);
        }
        self.lifecycle.chunk(data.len(), &self.tail, streamed);
        if streamed.is_some() {
            let so_far = self.tail.tokens_so_far();
            // Fewer are charged while the stated usage is implausible, as where it is the client's own JSON.
            let charged = self.lifecycle.charged_output().unwrap_or(so_far);
            self.count_tokens(so_far, charged);
        }
    }

    /// Adds the tokens since the last piece to the worker's counter, and records how many of the response are charged.
    fn count_tokens(&mut self, so_far: u64, charged: u64) {
        if !self.lifecycle.counts_tokens() {
            return;
        }
        // Before the client has the piece: it may leave, and request the rest by the response's id.
        if let Some(learner) = self.learner.as_mut().filter(|learner| learner.is_own()) {
            learner.count_own(charged);
        }
        self.worker_made(so_far);
    }

    /// Adds the tokens that the worker's counter does not have yet.
    fn worker_made(&mut self, so_far: u64) {
        let new = so_far.saturating_sub(self.counted_tokens);
        if new > 0 {
            self.counted_tokens = so_far;
            let link = &self.lifecycle.member(self.member).link;
            link.metrics.output_tokens.inc_by(new);
        }
    }

    /// Counts the tokens of an answer by a response's id that no earlier answer had, by its usage.
    fn count_rest(&mut self) {
        let Some(tokens) = self.tail.output_tokens() else {
            return;
        };
        let Some(learner) = self.learner.take_if(|learner| !learner.is_own()) else {
            return;
        };
        if let Some(before) = learner.count_by_id(OutputTokens::Stated(tokens))
            && before < tokens
        {
            self.counted_tokens = before;
            self.lifecycle.count_tokens_after(before);
        }
    }

    /// Divides the tokens of a response between its own answer, which ends here, and the answers by its id.
    fn settle_response(&mut self, is_read: bool) {
        let Some(learner) = self.learner.take() else {
            return;
        };
        if learner.is_own() {
            let is_stated = is_read && self.tail.output_tokens().is_some();
            if let Some(known) = learner.close(is_stated)
                && self.lifecycle.raise_output(known, &self.tail)
            {
                self.worker_made(known);
            }
            return;
        }
        // The usage is at the end of a stream, and its client has the tokens before it.
        if self.kind != AnswerKind::Events {
            return;
        }
        let so_far = self.lifecycle.output_by_id(&self.tail);
        if let Some(before) = learner.count_by_id(OutputTokens::Estimated(so_far))
            && before < so_far
        {
            self.counted_tokens = before;
            self.worker_made(so_far);
            self.lifecycle.charge_part(so_far - before);
        }
    }

    /// Records the first byte of the body. The head does not count: engines send it before they are at work.
    fn begun(&mut self, streamed: Option<Instant>) {
        self.has_begun = true;
        let Some(attempt) = &mut self.attempt else { return };
        attempt.span.first_byte();
        if self.is_well {
            self.lifecycle.member(self.member).link.answered(attempt.token);
        }
        if let Some(now) = streamed {
            self.lifecycle.first_token(now);
            attempt
                .lease
                .first_token(now.saturating_duration_since(attempt.dispatched));
        }
    }

    /// Records that the answer was read to its end.
    pub(crate) fn end(&mut self) {
        // The usage of a response in the background may be in no answer but those to requests by its id.
        if !self.lifecycle.counts_tokens() {
            self.count_rest();
        }
        self.lifecycle.read(&self.tail);
        if let Some(tokens) = self.tail.output_tokens() {
            self.count_tokens(tokens, tokens);
        }
        if let Some(attempt) = &mut self.attempt {
            attempt.lease.prompt_cached(|| self.tail.cached_tokens());
            attempt.lease.decoded(|| self.tail.output_tokens());
            attempt.span.last_byte();
            if self.is_well && !self.has_begun {
                self.lifecycle.member(self.member).link.answered(attempt.token);
            }
        }
        self.finish(Outcome::Complete);
    }

    /// Records that the answer broke off. Returns the outcome; a stream that breaks off after its last event has lost
    /// nothing, and is complete.
    pub(crate) fn broke_off(&mut self, error: &RelayError) -> Outcome {
        if self.kind == AnswerKind::Events && self.tail.stream_is_finished() {
            self.end();
            return Outcome::Complete;
        }
        let (outcome, fault) = match error {
            RelayError::Broken(_) => (Outcome::UpstreamError, Some(FailureKind::BrokenOff)),
            RelayError::Idle(_) => (Outcome::IdleTimeout, Some(FailureKind::IdleTimeout)),
            RelayError::TimedOut => (Outcome::RequestTimeout, None),
            RelayError::ShuttingDown => (Outcome::ShutDown, None),
        };
        if let Some(fault) = fault {
            self.blame(fault, error);
        }
        self.finish(outcome);
        outcome
    }

    fn finish(&mut self, outcome: Outcome) {
        self.settle_response(outcome == Outcome::Complete);
        if let Some(attempt) = self.attempt.take() {
            match outcome {
                Outcome::Complete => attempt.lease.finished(),
                Outcome::UpstreamError | Outcome::IdleTimeout => attempt.lease.failed(),
                _ => {}
            }
        }
        self.lifecycle.finish(outcome);
    }

    /// Blames the worker. One that sent a head and no byte after it has failed to answer.
    fn blame(&self, fault: FailureKind, error: &RelayError) {
        let member = self.lifecycle.member(self.member);
        let link = &member.link;
        link.metrics.failed(fault);
        let token = self.attempt.as_ref().map(|attempt| {
            attempt.span.failed(fault);
            attempt.token
        });
        let is_ejected = !self.has_begun
            && token.is_some_and(|token| self.lifecycle.pool().workers.failed(member, token, error));
        let worker = &*member.worker.spec().name;
        if let Some(held_back) = link.failure_log.pass() {
            let (id, error) = (RequestId(self.lifecycle.id()), error as &dyn std::error::Error);
            warn!(worker, request = %id, error, is_ejected, held_back, "a worker's answer broke off");
        }
    }

    /// Returns the link of the worker that answers.
    pub(crate) fn link(&self) -> &crate::fleet::worker::WorkerHandle {
        &self.lifecycle.member(self.member).link
    }
}

impl Drop for AnswerHandle {
    /// Settles the response of a client that left. The lifecycle ends with its own drop.
    fn drop(&mut self) {
        self.settle_response(false);
    }
}
