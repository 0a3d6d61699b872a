//! Relay of a worker's response to the client, frame by frame, with accounting at its end.
//!
//! The first byte passed on commits the request to this worker. From then on a failure is reported in the answer
//! itself: as an event where the answer is a stream of events, else by aborting the connection.
//!
//! Time to first token is taken at the first byte of the body of a streamed answer (status 200 to 299,
//! `text/event-stream`). An answer in one piece has no visible first token.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderName};
use http::{HeaderMap, HeaderValue, Response, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use inference_api::{CachedTokensFilter, Endpoint};
use worker_client::WorkerBody;

use crate::base::headers::{
    X_CONDUCTOR_MATCHED_TOKENS, X_CONDUCTOR_POLICY, X_CONDUCTOR_PREFILL_WORKER, X_CONDUCTOR_WORKER,
    strip_hop_by_hop,
};
use crate::base::idle_timeout::{ExpiredTimeout, IdleTimeout};
use crate::base::label::Outcome;
use crate::dispatch::attempt::{BegunAnswer, DecisionReport};
use crate::dispatch::session::PlacedAnswer;
use crate::dispatch::split::PrefillLeg;
use crate::request::lifecycle::RequestLifecycle;
use crate::request::place::{AnswerHandle, AnswerHead, AnswerKind};
use crate::request::relay_error::{RelayError, broken_off_event};
use crate::request::response_body::Body;
use crate::request::responses::ResponseLearner;

/// Body of a relayed answer.
#[derive(Debug)]
pub(crate) struct Relay {
    /// Body from the worker. `None` once it is over. Its connection is kept if it was read to the end. Otherwise the
    /// connection is closed.
    upstream: Option<WorkerBody>,
    handle: AnswerHandle,
    timeout: IdleTimeout,
    /// Prefill leg of a request that was split.
    prefill: Option<Box<PrefillLeg>>,
}

/// Parts of a relay, besides the answer.
#[derive(Debug)]
pub(crate) struct RelayParts {
    pub(crate) lifecycle: Box<RequestLifecycle>,
    pub(crate) endpoint: Endpoint,
    pub(crate) learner: Option<ResponseLearner>,
}

/// Makes the response to a client from a worker's.
pub(crate) fn response(placed: PlacedAnswer, parts: RelayParts) -> Response<Body> {
    let PlacedAnswer {
        mut answer,
        mut prefill,
    } = placed;
    report_decision(&mut answer, prefill.as_deref(), &parts.lifecycle);
    let answer = *answer;
    let (mut head, upstream) = answer.response.into_parts();
    let timeout = IdleTimeout::since(answer.attempt.dispatched, answer.timeouts);
    let seen = AnswerHead {
        status: head.status,
        headers: &head.headers,
        has_length: upstream.size_hint().exact().is_some(),
        connected: upstream.connected_at(),
    };
    let mut handle = AnswerHandle::status(parts.lifecycle, answer.attempt, parts.endpoint, seen);
    handle.learn(parts.learner, head.status);
    // The worker's HTTP version is its own. The server speaks the client's.
    head.version = Version::HTTP_11;
    if let Some(leg) = &mut prefill {
        let is_readable = handle.kind() != AnswerKind::Encoded && head.status.is_success();
        leg.correction = leg.correction.take().filter(|_| is_readable);
        if leg.correction.is_some() {
            // The length may change with the number.
            head.headers.remove(CONTENT_LENGTH);
        }
    }
    // Written where it lies. A closure would copy its parts once more.
    let room = Box::<Relay>::new_uninit();
    let mut relay = Box::write(
        room,
        Relay {
            upstream: Some(upstream),
            handle,
            timeout,
            prefill,
        },
    );
    relay.finish_if_read();
    Response::from_parts(head, Body::Relay(relay))
}

/// Replaces the headers of the worker's connection by those of the decision, and records the worker that answers.
pub(crate) fn report_decision(
    answer: &mut BegunAnswer,
    prefill: Option<&PrefillLeg>,
    lifecycle: &RequestLifecycle,
) {
    let headers = answer.response.headers_mut();
    strip_hop_by_hop(headers);
    let prefill = prefill.and_then(|leg| leg.member);
    decision_headers(headers, &answer.report, answer.attempt.member, prefill, lifecycle);
}

/// Adds the headers of the decision to a response, and records the worker that answers.
pub(crate) fn decision_headers(
    headers: &mut HeaderMap,
    report: &DecisionReport,
    member: usize,
    prefill: Option<usize>,
    lifecycle: &RequestLifecycle,
) {
    let name = |member| &lifecycle.member(member).link.label;
    if report.is_shown {
        label(headers, X_CONDUCTOR_WORKER, Some(name(member)));
        label(headers, X_CONDUCTOR_PREFILL_WORKER, prefill.map(name));
        label(headers, X_CONDUCTOR_POLICY, report.policy.as_ref());
    }
    if let Some(matched) = report.matched.filter(|_| report.is_shown) {
        headers.insert(X_CONDUCTOR_MATCHED_TOKENS, matched.into());
    }
    if let Some(trace) = lifecycle.trace() {
        let name = |member| &*lifecycle.member(member).worker.spec().name;
        trace.answers(name(member), prefill.map(name), report.matched);
    }
    lifecycle.access().update(|line| {
        let name = |member| lifecycle.member(member).worker.spec().name.clone();
        line.placement.worker = Some(name(member));
        line.placement.prefill_worker = prefill.map(name);
        line.size.matched_tokens = report.matched.map(u64::from);
    });
}

fn label(headers: &mut HeaderMap, name: HeaderName, value: Option<&HeaderValue>) {
    if let Some(value) = value.filter(|value| !value.is_empty()) {
        headers.insert(name, value.clone());
    }
}

impl Relay {
    /// Returns a frame as the client is to see it.
    fn pass(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let frame = match frame.into_data() {
            Ok(data) => {
                let data = self.correct(data);
                self.handle.chunk(&data);
                self.timeout.restart();
                Frame::data(data)
            }
            // The rest of the data goes before trailers, which the format of the answer does without.
            Err(trailers) => self.rest().unwrap_or(trailers),
        };
        self.finish_if_read();
        frame
    }

    fn correction(&mut self) -> Option<&mut CachedTokensFilter> {
        self.prefill.as_mut()?.correction.as_mut()
    }

    /// Corrects the number of cached tokens, where the worker's own is wrong.
    fn correct(&mut self, data: Bytes) -> Bytes {
        let Some(correction) = self.correction() else {
            return data;
        };
        let data = correction.push(data);
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
        let held = self.prefill.as_mut()?.correction.take()?.finish();
        (!held.is_empty()).then_some(held)
    }

    /// Returns the bytes that were held back, as the last frame of data.
    fn rest(&mut self) -> Option<Frame<Bytes>> {
        let held = self.held_back()?;
        self.handle.chunk(&held);
        Some(Frame::data(held))
    }

    /// Ends the exchange with the last byte, not when the server next polls for more.
    fn finish_if_read(&mut self) {
        if self.upstream.as_ref().is_some_and(HttpBody::is_end_stream) {
            self.complete();
        }
    }

    fn complete(&mut self) {
        if let Some(body) = self.upstream.take() {
            self.handle.link().upstream.checkin(body);
        }
        self.handle.end();
        if let Some(rest) = self.prefill.take().and_then(|leg| leg.rest) {
            rest.let_go();
        }
    }

    /// Ends an answer that cannot go on. An event reports that where it can. Otherwise the error aborts the connection.
    fn broken(&mut self, error: RelayError) -> Option<Result<Frame<Bytes>, RelayError>> {
        self.upstream = None;
        let outcome = self.handle.broke_off(&error);
        let leg = self.prefill.take();
        if outcome == Outcome::Complete {
            if let Some(rest) = leg.and_then(|leg| leg.rest) {
                rest.let_go();
            }
            return None;
        }
        if self.handle.kind() == AnswerKind::Events {
            let event = broken_off_event(self.handle.endpoint(), &error, self.handle.events());
            return Some(Ok(Frame::data(event.into())));
        }
        Some(Err(error))
    }

    /// Returns `true` if the stream is to be ended with a final event: only a stream of events can be.
    fn is_cut(&self) -> bool {
        self.handle.kind() == AnswerKind::Events && self.handle.is_cutting()
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
            Poll::Ready(Some(Err(error))) => Poll::Ready(relay.broken(RelayError::Broken(Some(error)))),
            Poll::Ready(None) => {
                if let Some(rest) = relay.rest() {
                    return Poll::Ready(Some(Ok(rest)));
                }
                relay.complete();
                Poll::Ready(None)
            }
            Poll::Pending => {
                let expired = std::task::ready!(relay.timeout.poll_expired(cx));
                Poll::Ready(relay.broken(match expired {
                    ExpiredTimeout::Idle(limit) => RelayError::Idle(limit),
                    ExpiredTimeout::Deadline => RelayError::TimedOut,
                }))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.upstream.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.prefill.as_ref().is_some_and(|leg| leg.correction.is_some()) {
            return SizeHint::default();
        }
        let over = || SizeHint::with_exact(0);
        self.upstream.as_ref().map_or_else(over, HttpBody::size_hint)
    }
}
