//! Checks of a worker's answer before any of it reaches the client: whether another worker may do better.

use std::borrow::Cow;
use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::{GzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use worker_client::{SendError, read_body};

use crate::base::headers::{is_event_stream, name_worker, strip_hop_by_hop};
use crate::base::label::FailureKind;
use crate::base::reply;
use crate::dispatch::attempt::BegunAnswer;
use crate::dispatch::attempt_error::{AttemptError, is_retryable_status};
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::load_guard::LoadGuard;
use crate::fleet::health::AttemptToken;
use crate::fleet::pool::{Member, WorkerPool};

/// Timeout for the body of an answer that may be about a model not served.
const ERROR_PATIENCE: Duration = Duration::from_secs(1);
/// Longest body of an error answer that is kept for the client, in bytes.
const LONGEST_ERROR: usize = 1 << 20;
/// Longest text of a compressed error answer that is read, in bytes.
const LONGEST_TEXT: u64 = 64 << 10;

/// Returns the answer, unless another worker may do better. A stream is waited for until it begins: an engine that gets
/// no prompt handed over reports this in the stream's first event. The head of that stream has status 200 (vLLM 0.32).
pub(crate) async fn accept(
    request: &InferenceRequest,
    mut answer: Box<BegunAnswer>,
) -> Result<Box<BegunAnswer>, AttemptError> {
    if is_retryable_status(answer.response.status()) {
        return Err(refused(request, &request.pool().workers, answer).await);
    }
    if may_be_not_served(request, answer.response.status()) && is_not_served(request, &mut answer).await {
        return Err(refused(request, &request.pool().workers, answer).await);
    }
    if !is_event_stream(answer.response.headers()) {
        return Ok(answer);
    }
    let limit = answer.timeouts.first_byte;
    let deadline = tokio::time::Instant::from_std(answer.attempt.dispatched + limit);
    let member = &request.pool().workers.members[answer.attempt.member];
    let (link, token) = (&member.link, answer.attempt.token);
    let first = tokio::time::timeout_at(deadline, answer.response.body_mut().peek()).await;
    let failed = |error: SendError| {
        answer.attempt.lease.failed();
        link.metrics.failed(FailureKind::from(&error));
        request
            .pool()
            .workers
            .failed(member, answer.attempt.token, &error);
        Err(error.into())
    };
    let begun = match first {
        Ok(Ok(first)) => first.and_then(|first| failed_in_stream(request, member, token, first)),
        Ok(Err(error)) => return failed(SendError::Closed(Some(error))),
        Err(_) => return failed(SendError::FirstByteTimeout(limit)),
    };
    match begun {
        Some(error) => {
            if error.is_the_workers() {
                answer.attempt.lease.failed();
            } else {
                answer.attempt.lease.finished();
            }
            Err(error)
        }
        None => Ok(answer),
    }
}

/// Returns `true` if engines refuse unknown models with this status.
pub(crate) fn may_be_not_served(request: &InferenceRequest, status: StatusCode) -> bool {
    match status {
        StatusCode::NOT_FOUND => true,
        // SGLang refuses an adapter that is not loaded as a bad request.
        StatusCode::BAD_REQUEST => request.served().now().adapter().is_some(),
        _ => false,
    }
}

/// Returns `true` if an answer with such a status means that the worker does not serve the request's model. Engines
/// report this in a body of one piece. A body in several pieces is passed to the client.
pub(crate) async fn is_not_served(request: &InferenceRequest, answer: &mut BegunAnswer) -> bool {
    let status = answer.response.status();
    let decoder = ErrorDecoder::of(answer.response.headers());
    let first = tokio::time::timeout(ERROR_PATIENCE, answer.response.body_mut().peek());
    let Ok(Ok(Some(body))) = first.await else {
        return false;
    };
    inference_api::is_model_not_found(status.as_u16(), &decoder.text(body), &request.params.model)
}

/// Decoder of an error answer, which a proxy before the engine may have compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorDecoder {
    Gzip,
    Deflate,
    /// Plain, or of an encoding that is passed on unread.
    None,
}

impl ErrorDecoder {
    fn of(headers: &HeaderMap) -> Self {
        let encoding = headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        let is = |name: &[u8]| encoding.is_some_and(|encoding| encoding.eq_ignore_ascii_case(name));
        if is(b"gzip") || is(b"x-gzip") {
            Self::Gzip
        } else if is(b"deflate") {
            Self::Deflate
        } else {
            Self::None
        }
    }

    /// Returns the beginning of the text.
    fn text(self, body: &[u8]) -> Cow<'_, [u8]> {
        let mut text = Vec::new();
        // After an error, the text so far is judged: a cut one is no JSON.
        let _ = match self {
            Self::Gzip => GzDecoder::new(body).take(LONGEST_TEXT).read_to_end(&mut text),
            Self::Deflate => ZlibDecoder::new(body).take(LONGEST_TEXT).read_to_end(&mut text),
            Self::None => return body.into(),
        };
        text.into()
    }
}

/// Returns the error that a stream begins with, as the answer it would have been without a stream.
pub(crate) fn failed_in_stream(
    request: &InferenceRequest,
    member: &Member,
    token: AttemptToken,
    first: &[u8],
) -> Option<AttemptError> {
    let link = &member.link;
    let (status, body) = inference_api::error_in_first_event(first)?;
    let status = StatusCode::from_u16(status).ok();
    let status = status.filter(|status| status.is_client_error() || status.is_server_error());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status.is_server_error() {
        link.metrics.failed(FailureKind::ServerError);
        request.pool().workers.server_error(member, token, status);
    } else {
        link.answered(token);
    }
    let mut response = reply::json(status, body);
    name_worker(
        response.headers_mut(),
        &link.label,
        request.settings.decision_headers,
    );
    Some(AttemptError::Refused(Box::new(response)))
}

/// Keeps a worker's answer for the client, in case no other worker does better.
pub(crate) async fn refused(
    request: &InferenceRequest,
    workers: &WorkerPool,
    answer: Box<BegunAnswer>,
) -> AttemptError {
    let answer = *answer;
    let member = &workers.members[answer.attempt.member];
    let token = answer.attempt.token;
    let (head, mut body) = answer.response.into_parts();
    count_refusal(member, &answer.attempt.lease, head.status);
    match read_body(&mut body, LONGEST_ERROR, answer.timeouts.idle).await {
        Ok(text) => {
            member.link.upstream.checkin(body);
            read_refusal(request, member, token, Response::from_parts(head, text))
        }
        Err(error) => {
            member.link.metrics.failed(FailureKind::BrokenOff);
            AttemptError::BrokeOff(error)
        }
    }
}

/// Counts an answer that is kept from the client against its worker.
pub(crate) fn count_refusal(member: &Member, lease: &LoadGuard, status: StatusCode) {
    if is_retryable_status(status) {
        lease.failed();
    }
    if status.is_server_error() {
        member.link.metrics.failed(FailureKind::ServerError);
    }
}

/// Returns the error of a worker's answer that was read in full.
pub(crate) fn read_refusal(
    request: &InferenceRequest,
    member: &Member,
    token: AttemptToken,
    answer: Response<Bytes>,
) -> AttemptError {
    let (mut head, text) = answer.into_parts();
    let decoder = ErrorDecoder::of(&head.headers);
    if !head.status.is_server_error() {
        member.link.answered(token);
    }
    label(&mut head, member, request.settings.decision_headers);
    let (status, model) = (head.status, &request.params.model);
    let is_not_served = may_be_not_served(request, status)
        && inference_api::is_model_not_found(status.as_u16(), &decoder.text(&text), model);
    let response = Box::new(Response::from_parts(head, text));
    if is_not_served {
        AttemptError::NotServed(response)
    } else {
        AttemptError::Refused(response)
    }
}

fn label(head: &mut http::response::Parts, member: &Member, is_shown: bool) {
    strip_hop_by_hop(&mut head.headers);
    // The body is complete, so its length is set again.
    head.headers.remove(CONTENT_LENGTH);
    name_worker(&mut head.headers, &member.link.label, is_shown);
    head.version = http::Version::HTTP_11;
}
