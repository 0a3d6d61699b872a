//! Enrollment of one request in an experiment: observes the request and records its result.

use std::sync::Arc;
use std::time::Duration;

use experiment::{Assignment, RequestEnd, RequestObserver};
use http::StatusCode;
use inference_api::Tail;

use super::trial::Trial;
use crate::base::label::Outcome;

/// Enrollment of a request in an arm.
#[derive(Debug)]
pub(crate) struct Enrollment {
    trial: Arc<Trial>,
    assignment: Assignment,
    observer: RequestObserver,
}

impl Enrollment {
    /// Enrolls a request. `streams` is `true` if the client requested a stream.
    pub(crate) fn new(trial: Arc<Trial>, assignment: Assignment, streams: bool) -> Self {
        Self {
            trial,
            assignment,
            observer: RequestObserver::new(streams),
        }
    }

    /// Records the response status.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.observer.answered(status.as_u16());
    }

    /// Records the time from the request head to the first byte of a streamed response.
    pub(crate) fn first_token(&mut self, after: Duration) {
        self.observer.first_token(after);
    }

    /// Records a chunk of the response.
    pub(crate) fn chunk(&mut self) {
        self.observer.chunk();
    }

    /// Records the usage of a complete response.
    pub(crate) fn read(&mut self, tail: &Tail) {
        let cached = tail.prompt_tokens().zip(tail.cached_tokens());
        self.observer.usage(tail.output_tokens(), cached);
    }

    /// Records the end of the request, `after` its head arrived.
    pub(crate) fn end(self, outcome: Outcome, after: Duration) {
        let result = self.observer.result(request_end(outcome), after);
        self.trial
            .ended(self.assignment, outcome, self.observer.ttft(), &result);
    }
}

/// Returns the end of a request as its arm counts it.
fn request_end(outcome: Outcome) -> RequestEnd {
    match outcome {
        Outcome::Complete => RequestEnd::Complete,
        Outcome::ClientLeft => RequestEnd::ClientLeft,
        Outcome::ShutDown
        | Outcome::Invalid
        | Outcome::Unauthorized
        | Outcome::Limited
        | Outcome::BodiesFull => RequestEnd::NotCounted,
        Outcome::UpstreamError
        | Outcome::IdleTimeout
        | Outcome::FirstByteTimeout
        | Outcome::Unreachable
        | Outcome::Rejected
        | Outcome::QueueFull
        | Outcome::QueueTimeout
        | Outcome::Shed
        | Outcome::RequestTimeout
        | Outcome::TooSlow => RequestEnd::Failed,
    }
}
