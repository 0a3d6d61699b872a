//! Errors of an attempt, and the blame they put on workers.

use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use routing::WorkerId;
use thiserror::Error;
use worker_client::{ReadError, SendError, read_body};

use crate::base::headers::{name_worker, strip_hop_by_hop};
use crate::base::label::FailureKind;
use crate::base::reply::{self, Refusal};
use crate::dispatch::attempt::Answer;
use crate::fleet::health::AttemptToken;
use crate::fleet::pool::Member;
use crate::request::context::RequestContext;
use crate::request::stream;

/// Timeout for the body of an answer that may be about a model not served.
const ERROR_PATIENCE: Duration = Duration::from_secs(1);
/// Longest body of an error answer that is kept for the client, in bytes.
const LONGEST_ERROR: usize = 1 << 20;

/// Error of a leg that failed before any of it reached the client.
#[derive(Debug, Error)]
pub(crate) enum AttemptError {
    #[error(transparent)]
    Forward(#[from] SendError),
    #[error("read the answer to its end")]
    BrokeOff(#[source] ReadError<hyper::Error>),
    #[error("get the whole answer of the prefill leg within {0:?}")]
    PrefillTimeout(Duration),
    /// The worker's error response.
    #[error("get a good answer: the worker said {}", .0.status())]
    Refused(Box<Response<Bytes>>),
    /// The worker's response to a model that it does not serve.
    #[error("get a good answer: the worker does not serve the model, and said {}", .0.status())]
    NotServed(Box<Response<Bytes>>),
    #[error("have the prompt handed over by the prefill worker")]
    NotHandedOver,
    #[error("have the prompt handed over: the prefill worker's engine has restarted")]
    EngineRestarted,
    #[error("learn the engine id from the prefill worker's bootstrap server")]
    EngineUnknown,
}

impl AttemptError {
    /// Returns `true` if another worker may be tried.
    pub(crate) fn may_go_elsewhere(&self) -> bool {
        match self {
            Self::Forward(error) => error.may_go_elsewhere(),
            Self::BrokeOff(error) => !matches!(error, ReadError::Stalled { .. }),
            Self::PrefillTimeout(_) => false,
            Self::Refused(response) => is_retryable_status(response.status()),
            Self::NotServed(_) | Self::EngineUnknown | Self::EngineRestarted | Self::NotHandedOver => true,
        }
    }

    /// Returns `true` if the worker failed. Otherwise it answered, and refused the request itself.
    pub(crate) fn is_the_workers(&self) -> bool {
        match self {
            Self::Refused(response) => is_retryable_status(response.status()),
            Self::NotServed(_) => false,
            _ => true,
        }
    }

    /// Returns `true` if the error does not count against the worker. The same worker may be tried again.
    pub(crate) fn is_blameless(&self) -> bool {
        match self {
            Self::Forward(error) => error.is_blameless(),
            Self::EngineRestarted => true,
            _ => false,
        }
    }

    /// Returns `true` if no worker can have computed anything for the attempt. A retry then adds nothing to their load.
    pub(crate) fn cost_nothing(&self) -> bool {
        matches!(
            self,
            Self::Forward(SendError::Connect(_) | SendError::KeptClosed(_))
                | Self::NotServed(_)
                | Self::EngineUnknown
                | Self::EngineRestarted
        )
    }

    /// Returns `true` if the worker cannot have begun. Parameters that were prepared for it are valid for another
    /// worker.
    pub(crate) fn nothing_was_used(&self) -> bool {
        match self {
            Self::Forward(SendError::Connect(_)) | Self::NotServed(_) => true,
            Self::Refused(response) => matches!(
                response.status(),
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
            ),
            _ => false,
        }
    }

    /// Returns `true` if the worker is finished with the leg: it was not reached, or has answered.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Forward(SendError::Connect(_)) | Self::Refused(_) | Self::NotServed(_)
        )
    }

    /// Returns `true` if the worker's engine may have been restarted. The worker's answer about a request itself is no
    /// sign of a restart.
    pub(crate) fn may_be_a_restart(&self) -> bool {
        match self {
            Self::Forward(_) | Self::BrokeOff(_) => true,
            Self::Refused(response) => response.status().is_server_error(),
            _ => false,
        }
    }

    /// Returns `true` if the decode worker may only lack the prompt, rather than be broken. Only a status can show
    /// that.
    pub(crate) fn may_lack_the_prompt(&self) -> bool {
        matches!(self, Self::Refused(response) if response.status().is_server_error() && !self.nothing_was_used())
    }
}

/// Failed attempt, with the workers to blame.
#[derive(Debug)]
pub(crate) struct AttemptFailure {
    /// Worker to exclude from further attempts of this request. `None` if only the cached knowledge of it was stale.
    pub(crate) blamed: Option<WorkerId>,
    /// Prefill and decode worker when the failure cannot be attributed to one of them. If no other worker is left, both
    /// are retried, the second first.
    pub(crate) suspected: Option<[WorkerId; 2]>,
    pub(crate) error: AttemptError,
}

/// Returns `true` for a status of a busy or broken worker (429, 5xx), where another worker may do better. Other
/// statuses concern the client's request.
pub(crate) fn is_retryable_status(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// Returns the answer, unless another worker may do better. A stream is waited for until it begins: an engine that gets
/// no prompt handed over says so in the stream's first event. The head of that stream has status 200 (vLLM 0.32).
pub(crate) async fn accept(request: &RequestContext, mut answer: Answer) -> Result<Answer, AttemptError> {
    if is_retryable_status(answer.response.status()) {
        return Err(refused(request, answer).await);
    }
    if may_be_not_served(request, &answer) && is_not_served(request, &mut answer).await {
        return Err(refused(request, answer).await);
    }
    if !stream::is_event_stream(answer.response.headers()) {
        return Ok(answer);
    }
    let limit = answer.silence.first_byte;
    let deadline = tokio::time::Instant::from_std(answer.dispatched + limit);
    let member = &request.pool().workers.members[answer.member];
    let (link, dispatch) = (&member.link, answer.dispatch);
    let first = tokio::time::timeout_at(deadline, answer.response.body_mut().peek()).await;
    let failed = |error: SendError| {
        answer.booking.failed();
        link.metrics.failed(FailureKind::from(&error));
        request.pool().workers.failed(member, answer.dispatch, &error);
        Err(error.into())
    };
    let begun = match first {
        Ok(Ok(first)) => first.and_then(|first| failed_in_stream(request, member, dispatch, first)),
        Ok(Err(error)) => return failed(SendError::Closed(error)),
        Err(_) => return failed(SendError::FirstByteTimeout(limit)),
    };
    match begun {
        Some(error) => {
            if error.is_the_workers() {
                answer.booking.failed();
            } else {
                answer.booking.finished();
            }
            Err(error)
        }
        None => Ok(answer),
    }
}

/// Returns `true` if engines refuse unknown models with this status.
pub(crate) fn may_be_not_served(request: &RequestContext, answer: &Answer) -> bool {
    match answer.response.status() {
        StatusCode::NOT_FOUND => true,
        // SGLang refuses an adapter that is not loaded as a bad request.
        StatusCode::BAD_REQUEST => request.served.now().adapter().is_some(),
        _ => false,
    }
}

/// Returns `true` if an answer with such a status says that the worker does not serve the request's model. Engines say
/// so in a body of one piece. A body in several pieces is passed to the client.
pub(crate) async fn is_not_served(request: &RequestContext, answer: &mut Answer) -> bool {
    let status = answer.response.status();
    let first = tokio::time::timeout(ERROR_PATIENCE, answer.response.body_mut().peek());
    let Ok(Ok(Some(body))) = first.await else {
        return false;
    };
    inference_api::is_model_not_found(status.as_u16(), body, &request.model)
}

/// Returns the error that a stream begins with, as the answer it would have been without a stream.
pub(crate) fn failed_in_stream(
    request: &RequestContext,
    member: &Member,
    dispatch: AttemptToken,
    first: &[u8],
) -> Option<AttemptError> {
    let link = &member.link;
    let (status, body) = inference_api::error_in_first_event(first)?;
    let status = StatusCode::from_u16(status).ok();
    let status = status.filter(|status| status.is_client_error() || status.is_server_error());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status.is_server_error() {
        link.metrics.failed(FailureKind::ServerError);
        request.pool().workers.server_error(member, dispatch, status);
    } else {
        link.answered(dispatch);
    }
    let mut told = reply::json(status, body);
    name_worker(told.headers_mut(), &link.label, request.snapshot.decision_headers);
    Some(AttemptError::Refused(Box::new(told)))
}

/// Keeps a worker's answer for the client, in case no other worker does better.
pub(crate) async fn refused(request: &RequestContext, answer: Answer) -> AttemptError {
    if is_retryable_status(answer.response.status()) {
        answer.booking.failed();
    }
    let member = &request.pool().workers.members[answer.member];
    let dispatch = answer.dispatch;
    let (mut head, mut body) = answer.response.into_parts();
    if head.status.is_server_error() {
        member.link.metrics.failed(FailureKind::ServerError);
    }
    strip_hop_by_hop(&mut head.headers);
    match read_body(&mut body, LONGEST_ERROR, answer.silence.idle).await {
        Ok(text) => {
            if !head.status.is_server_error() {
                member.link.answered(dispatch);
            }
            member.link.upstream.checkin(body);
            label(&mut head, member, request.snapshot.decision_headers);
            let is_not_served =
                inference_api::is_model_not_found(head.status.as_u16(), &text, &request.model);
            let told = Box::new(Response::from_parts(head, text));
            if is_not_served {
                AttemptError::NotServed(told)
            } else {
                AttemptError::Refused(told)
            }
        }
        Err(error) => {
            member.link.metrics.failed(FailureKind::BrokenOff);
            AttemptError::BrokeOff(error)
        }
    }
}

fn label(head: &mut http::response::Parts, member: &Member, is_shown: bool) {
    // The body is complete, so its length is set again.
    let kept = [http::header::CONTENT_TYPE, RETRY_AFTER];
    let mut headers = http::HeaderMap::with_capacity(3);
    for name in kept {
        if let Some(value) = head.headers.remove(&name) {
            headers.insert(name, value);
        }
    }
    name_worker(&mut headers, &member.link.label, is_shown);
    head.headers = headers;
    head.version = http::Version::HTTP_11;
}

impl From<AttemptError> for Refusal {
    fn from(error: AttemptError) -> Self {
        match error {
            AttemptError::Forward(error) => error.into(),
            AttemptError::BrokeOff(error) => Self::WorkerBrokeOff(error),
            AttemptError::PrefillTimeout(_) => Self::PrefillSlow(error.into()),
            AttemptError::Refused(response) | AttemptError::NotServed(response) => Self::Relayed(response),
            AttemptError::NotHandedOver | AttemptError::EngineRestarted => Self::NotHandedOver(error.into()),
            AttemptError::EngineUnknown => Self::EngineUnknown(error.into()),
        }
    }
}
