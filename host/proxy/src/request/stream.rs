//! Relay of a worker's response to the client, frame by frame, with accounting at its end.
//!
//! The first byte passed on commits the request to this worker. From then on a failure is reported in the answer
//! itself: as an event where the answer is a stream of events, else by aborting the connection.
//!
//! Time to first token is taken at the first byte of the body of a streamed answer (status 200 to 299,
//! `text/event-stream`). An answer in one piece has no visible first token.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use inference_api::{CachedTokensFilter, Endpoint, Tail};
use thiserror::Error;
use tracing::warn;
use worker_client::WorkerBody;

use crate::base::headers::{
    X_CONDUCTOR_MATCHED_TOKENS, X_CONDUCTOR_POLICY, X_CONDUCTOR_PREFILL_WORKER, X_CONDUCTOR_WORKER,
    strip_hop_by_hop,
};
use crate::base::idle_timeout::{IdleTimeout, TooLong};
use crate::base::label::{FailureKind, Outcome};
use crate::base::readiness::Readiness;
use crate::base::reply;
use crate::base::request_id::RequestId;
use crate::dispatch::attempt::Answer;
use crate::dispatch::split::{UpstreamResponse, is_retryable_status};
use crate::fleet::health::AttemptToken;
use crate::request::lifecycle::{LoadGuard, RequestLifecycle};
use crate::request::response_body::Body;
use crate::request::responses::ResponseLearner;
use crate::tasks::Guard;

/// Error of an answer that broke off.
#[derive(Debug, Error)]
pub(crate) enum RelayError {
    #[error("read on in the worker's answer")]
    Broken(#[source] hyper::Error),
    #[error("read on in the worker's answer: nothing came for {0:?}")]
    Silent(Duration),
    #[error("read on in the worker's answer: the request's time is up")]
    Over,
    #[error("read on in the worker's answer: the router is shutting down")]
    ShuttingDown,
}

/// Body of a relayed answer.
#[derive(Debug)]
pub(crate) struct Relay {
    /// Body from the worker. `None` once it is over. Its connection is kept if it was read to the end. Otherwise the
    /// connection is closed.
    upstream: Option<WorkerBody>,
    exchange: RequestLifecycle,
    endpoint: Endpoint,
    /// Index into the pool's members.
    member: usize,
    dispatch: AttemptToken,
    /// `true` if the status does not count against the worker.
    is_well: bool,
    booking: Option<LoadGuard>,
    kind: AnswerKind,
    tail: Tail,
    silence: IdleTimeout,
    readiness: Readiness,
    /// Filter that corrects the number of cached tokens, where the worker cannot know it.
    truth: Option<CachedTokensFilter>,
    /// Learner of the response's id.
    learner: Option<ResponseLearner>,
    /// Background task that finishes the prefill leg.
    rest: Option<Guard>,
}

/// Kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerKind {
    /// Server-sent events, which can carry an error.
    Events,
    /// JSON or the like.
    Whole,
    /// Compressed: it can neither be read nor extended.
    Encoded,
}

/// Makes the response to a client from a worker's.
pub(crate) fn response(
    placed: UpstreamResponse,
    mut exchange: RequestLifecycle,
    endpoint: Endpoint,
    readiness: Readiness,
    learner: Option<ResponseLearner>,
) -> Response<Body> {
    let UpstreamResponse {
        mut answer,
        prefill,
        truth,
        rest,
    } = placed;
    tell(&mut answer, prefill, &exchange);
    let (mut head, upstream) = answer.response.into_parts();
    if head.status.is_server_error() {
        let link = &exchange.member(answer.member).link;
        link.metrics.failed(FailureKind::ServerError);
    }
    if is_retryable_status(head.status) {
        answer.booking.failed();
    }
    exchange.answered(head.status);
    // The worker's HTTP version is its own. The server speaks the client's.
    head.version = Version::HTTP_11;
    let kind = kind(&head, &upstream);
    let truth = truth.filter(|_| kind != AnswerKind::Encoded && head.status.is_success());
    if truth.is_some() {
        // The length may change with the number.
        head.headers.remove(CONTENT_LENGTH);
    }
    let mut relay = Relay {
        kind,
        upstream: Some(upstream),
        endpoint,
        member: answer.member,
        dispatch: answer.dispatch,
        is_well: !head.status.is_server_error(),
        booking: Some(answer.booking),
        tail: Tail::default(),
        silence: IdleTimeout::since(answer.dispatched, answer.silence),
        readiness,
        exchange,
        learner: learner.filter(|_| kind != AnswerKind::Encoded && head.status.is_success()),
        truth,
        rest,
    };
    relay.finish_if_read();
    Response::from_parts(head, Body::Relay(Box::new(relay)))
}

/// Replaces the headers of the worker's connection by those of the decision, and records the worker that answers.
pub(crate) fn tell(answer: &mut Answer, prefill: Option<usize>, exchange: &RequestLifecycle) {
    let headers = answer.response.headers_mut();
    strip_hop_by_hop(headers);
    let name = |member| &exchange.member(member).link.label;
    if answer.is_told {
        label(headers, X_CONDUCTOR_WORKER, Some(name(answer.member)));
        label(headers, X_CONDUCTOR_PREFILL_WORKER, prefill.map(name));
        label(headers, X_CONDUCTOR_POLICY, answer.decided_by.as_ref());
    }
    if let Some(matched) = answer.matched.filter(|_| answer.is_told) {
        headers.insert(X_CONDUCTOR_MATCHED_TOKENS, matched.into());
    }
    if let Some(trace) = exchange.trace() {
        let name = |member| &*exchange.member(member).worker.spec().name;
        trace.answers(name(answer.member), prefill.map(name), answer.matched);
    }
}

fn label(headers: &mut HeaderMap, name: HeaderName, value: Option<&HeaderValue>) {
    if let Some(value) = value.filter(|value| !value.is_empty()) {
        headers.insert(name, value.clone());
    }
}

fn kind(head: &http::response::Parts, body: &WorkerBody) -> AnswerKind {
    if head.headers.contains_key(CONTENT_ENCODING) {
        return AnswerKind::Encoded;
    }
    // An answer with an announced length cannot be extended.
    if is_event_stream(&head.headers) && head.status.is_success() && body.size_hint().exact().is_none() {
        AnswerKind::Events
    } else {
        AnswerKind::Whole
    }
}

/// Returns `true` if the body is server-sent events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        let essence = value.as_bytes().split(|byte| *byte == b';').next();
        essence
            .unwrap_or_default()
            .trim_ascii()
            .eq_ignore_ascii_case(b"text/event-stream")
    })
}

impl Relay {
    fn passed(&mut self, data: &Bytes) {
        if !self.silence.seen_first {
            self.begun();
        }
        self.silence.broken();
        if self.learner.as_mut().is_some_and(|learner| learner.push(data)) {
            self.learner = None;
        }
        if self.kind == AnswerKind::Encoded {
            self.tail.push_unread(data);
        } else {
            self.tail.push(data);
        }
        self.exchange.chunk(&self.tail);
    }

    /// Returns a frame as the client is to see it.
    fn pass(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let frame = match frame.into_data() {
            Ok(data) => {
                let data = self.put_right(data);
                self.passed(&data);
                Frame::data(data)
            }
            Err(trailers) => trailers,
        };
        self.finish_if_read();
        frame
    }

    fn put_right(&mut self, data: Bytes) -> Bytes {
        let Some(truth) = &mut self.truth else { return data };
        let data = truth.push(data);
        if !self.upstream.as_ref().is_some_and(HttpBody::is_end_stream) {
            return data;
        }
        match self.held_back() {
            Some(held) => [data, held].concat().into(),
            None => data,
        }
    }

    /// Returns the bytes held back by the cached-token filter, which the end of the answer shows to need no correction.
    fn held_back(&mut self) -> Option<Bytes> {
        let held = self.truth.take()?.finish();
        (!held.is_empty()).then_some(held)
    }

    /// Records the first byte of the body. The head does not count: engines send it before they are at work.
    fn begun(&mut self) {
        if self.is_well {
            self.exchange.member(self.member).link.answered(self.dispatch);
        }
        if self.kind == AnswerKind::Events {
            self.exchange.first_token();
            if let Some(booking) = &mut self.booking {
                booking.first_token(self.silence.dispatched.elapsed());
            }
        }
    }

    /// Ends the exchange with the last byte, not when the server next polls for more.
    fn finish_if_read(&mut self) {
        if self.upstream.as_ref().is_some_and(HttpBody::is_end_stream) {
            self.complete();
        }
    }

    fn complete(&mut self) {
        self.exchange.read(&self.tail);
        if let Some(booking) = &self.booking {
            booking.decoded(|| self.tail.output_tokens());
        }
        let link = &self.exchange.member(self.member).link;
        if self.is_well && !self.silence.seen_first {
            link.answered(self.dispatch);
        }
        if let Some(body) = self.upstream.take() {
            link.upstream.checkin(body);
        }
        self.finish(Outcome::Complete);
    }

    fn finish(&mut self, outcome: Outcome) {
        self.upstream = None;
        if let Some(booking) = self.booking.take() {
            match outcome {
                Outcome::Complete => booking.finished(),
                Outcome::UpstreamError | Outcome::IdleTimeout => booking.failed(),
                _ => {}
            }
        }
        if let (Some(rest), Outcome::Complete) = (self.rest.take(), outcome) {
            rest.let_go();
        }
        self.exchange.finish(outcome);
    }

    /// Ends an answer that cannot go on. An event reports that where it can. Otherwise the error aborts the connection.
    fn broken(&mut self, error: RelayError) -> Option<Result<Frame<Bytes>, RelayError>> {
        // A stream that breaks off after its last event has lost nothing.
        if self.kind == AnswerKind::Events && self.tail.stream_is_finished() {
            self.upstream = None;
            self.complete();
            return None;
        }
        let (outcome, fault) = match error {
            RelayError::Broken(_) => (Outcome::UpstreamError, Some(FailureKind::BrokenOff)),
            RelayError::Silent(_) => (Outcome::IdleTimeout, Some(FailureKind::IdleTimeout)),
            RelayError::Over => (Outcome::RequestTimeout, None),
            RelayError::ShuttingDown => (Outcome::ShutDown, None),
        };
        if let Some(fault) = fault {
            self.blame(fault, &error);
        }
        self.finish(outcome);
        if self.kind == AnswerKind::Events {
            let event = broken_off_event(self.endpoint, &error);
            return Some(Ok(Frame::data(event.into())));
        }
        Some(Err(error))
    }

    /// Blames the worker. A worker that never began may be hung, and is ejected.
    fn blame(&self, fault: FailureKind, error: &RelayError) {
        let member = self.exchange.member(self.member);
        let link = &member.link;
        link.metrics.failed(fault);
        let hung = fault == FailureKind::IdleTimeout && !self.silence.seen_first;
        let rests = hung && self.exchange.pool().workers.failed(member, self.dispatch, error);
        let worker = &*member.worker.spec().name;
        if let Some(held_back) = link.failure_log.pass() {
            let (id, error) = (RequestId(self.exchange.id()), error as &dyn std::error::Error);
            warn!(worker, request = %id, error, rests, held_back, "a worker's answer broke off");
        }
    }

    /// Returns `true` if the stream is to be ended with a final event: only a stream of events can be.
    fn is_cut(&self) -> bool {
        self.kind == AnswerKind::Events && self.readiness.is_cutting()
    }
}

impl HttpBody for Relay {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let relay = self.get_mut();
        if relay.upstream.is_some() && relay.is_cut() {
            return Poll::Ready(relay.broken(RelayError::ShuttingDown));
        }
        let Some(upstream) = &mut relay.upstream else {
            return Poll::Ready(None);
        };
        match Pin::new(upstream).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(relay.pass(frame)))),
            Poll::Ready(Some(Err(error))) => Poll::Ready(relay.broken(RelayError::Broken(error))),
            Poll::Ready(None) => {
                if let Some(held) = relay.held_back() {
                    return Poll::Ready(Some(Ok(Frame::data(held))));
                }
                relay.complete();
                Poll::Ready(None)
            }
            Poll::Pending => {
                let too_long = std::task::ready!(relay.silence.poll_too_long(cx));
                Poll::Ready(relay.broken(match too_long {
                    TooLong::Silent(limit) => RelayError::Silent(limit),
                    TooLong::Whole => RelayError::Over,
                }))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.upstream.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.truth.is_some() {
            return SizeHint::default();
        }
        let over = || SizeHint::with_exact(0);
        self.upstream.as_ref().map_or_else(over, HttpBody::size_hint)
    }
}

/// Returns the error event of a stream that broke off.
pub(crate) fn broken_off_event(endpoint: Endpoint, error: &RelayError) -> Vec<u8> {
    let (status, message, code) = match error {
        RelayError::Broken(_) => (
            StatusCode::BAD_GATEWAY,
            "the worker broke off its answer",
            "worker_broke_off",
        ),
        RelayError::Silent(_) => (
            StatusCode::GATEWAY_TIMEOUT,
            "the worker stopped answering",
            "worker_timeout",
        ),
        RelayError::Over => (
            StatusCode::GATEWAY_TIMEOUT,
            "the request took longer than it may",
            "request_timeout",
        ),
        RelayError::ShuttingDown => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the router is shutting down",
            "shutting_down",
        ),
    };
    reply::stream_error(endpoint, status, message, code)
}
