//! The only place that makes HTTP errors: status, stable code and public message, in the shape that the clients of an
//! endpoint read. What went on inside goes to the log.

mod sources;

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE,
};
use http::{Response, StatusCode};
use inference_api::{
    Endpoint, ErrorBody, ErrorShape, FormError, HandshakeError, QueryError, anthropic_error_kind, error_event,
};
use routing::{Rejection, Role};
use thiserror::Error;
use tracing::debug;
use worker_client::SendError;

use crate::admission::TooSlow;
use crate::clients::Limited;
use crate::headers::X_CONDUCTOR_POLICY;
use crate::intake::IntakeError;
use crate::label::Outcome;
use crate::pd::LegError;
use crate::relay::RelayError;

/// When a client may come back after finding no room or nobody there.
const COME_BACK: Duration = Duration::from_secs(1);
/// The same as `retry-after`, to the millisecond; OpenAI's clients prefer it.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Longest text of a client that is said back to it or logged, in bytes.
const LONGEST_ECHO: usize = 256;

/// Why the router answers instead of a worker. Its text is what the client is told.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error("no API key was sent: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`")]
    NoKey,
    #[error("the API key that was sent is not known")]
    WrongKey,
    #[error("`{field}` may not be set with this API key")]
    FieldNotAllowed { field: &'static str },
    #[error(transparent)]
    Limited(Limited),
    #[error("the request body is longer than {limit} bytes")]
    BodyTooLarge { limit: usize },
    #[error("the request body did not arrive in time")]
    BodyTimeout,
    #[error("the request body arrived too slowly while others waited for its place")]
    BodyGaveWay,
    #[error("the requests under way take all the room for request bodies")]
    BodiesFull,
    #[error("the address that the request comes from has as many requests under way as it may")]
    AddressFull,
    #[error("the router is short of memory")]
    MemoryFull,
    #[error("the request body nests arrays and objects more than {limit} deep")]
    BodyTooDeep { limit: usize },
    #[error("the URL is longer than {limit} bytes")]
    UrlTooLong { limit: usize },
    #[error("the request's headers are longer than {limit} bytes")]
    HeadersTooLarge { limit: usize },
    #[error("the request has more than {limit} headers")]
    TooManyHeaders { limit: usize },
    #[error("the router reads no transfer coding but `chunked`")]
    TransferCoding,
    #[error("the request must have one `Host` header, which names one host")]
    Host,
    #[error("the request has been through this router before: one of its workers leads back to it")]
    Loop,
    #[error("the router has as many connections as it may")]
    ConnectionsFull,
    #[error("the router is shutting down")]
    ShuttingDown,
    #[error("the request body could not be read")]
    BodyBroken(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the request body is not valid JSON: {0}")]
    BodyInvalid(serde_json::Error),
    #[error("the request body is not a JSON object")]
    BodyNotObject,
    #[error("the request body cannot be read as a form: {0}")]
    BodyNoForm(FormError),
    #[error("the query of the URL cannot be read: {0}")]
    QueryInvalid(QueryError),
    #[error(
        "`{path}` is a WebSocket: send an HTTP/1.1 GET with `Connection: Upgrade` and `Upgrade: websocket`"
    )]
    UpgradeRequired { path: &'static str },
    #[error("a request that asks for a WebSocket has no body")]
    UpgradeWithBody,
    #[error("the model `{model}` does not exist")]
    ModelNotFound { model: Box<str> },
    #[error("the request names no model, and the router cannot tell which one it means: name it as `model`")]
    ModelMissing,
    #[error("the pool `{pool}` has no workers")]
    PoolEmpty { pool: Box<str> },
    #[error("no worker could be reached")]
    NoWorker(#[source] Option<SendError>),
    #[error("the worker closed the connection before it answered")]
    WorkerClosed(#[source] SendError),
    #[error("the worker's answer could not be understood")]
    WorkerConfused(#[source] SendError),
    #[error("the worker did not begin to answer in time")]
    WorkerSlow(#[source] SendError),
    #[error("the prompt was not computed in time")]
    PrefillSlow(#[source] LegError),
    #[error("the worker's answer could not be read to its end")]
    WorkerBrokeOff(#[source] IntakeError<hyper::Error>),
    #[error("the prefill worker did not hand the prompt over")]
    NotHandedOver(#[source] LegError),
    #[error("no prefill worker told its engine id")]
    EngineUnknown(#[source] LegError),
    /// What the last worker that was tried said itself.
    #[error("the worker refused the request")]
    Relayed(Box<Response<Bytes>>),
    #[error("the pool `{pool}` has no {} worker", missing.as_str())]
    OneSided { pool: Box<str>, missing: Role },
    #[error(
        "the pool `{pool}` answers with two workers, and this request (by its endpoint, a batch, `n`, `echo`, \
         log-probabilities of the prompt or beam search) can only be answered by one"
    )]
    CannotSplit { pool: Box<str> },
    #[error("the router does not know yet how the engines of the pool `{pool}` hand prompts over")]
    DialectUnknown { pool: Box<str> },
    #[error("the router does not {0}")]
    Handshake(HandshakeError),
    #[error("no worker told its models")]
    NoModels,
    #[error("too many requests are waiting for a worker")]
    QueueFull { after: Duration },
    #[error("no worker became free in time")]
    QueueTimeout { after: Duration },
    #[error("the request made room for a more important one")]
    Shed { after: Duration },
    #[error("the request was not begun: {slow}")]
    TooSlow { slow: TooSlow, after: Duration },
    #[error("the request was not answered in the time it has")]
    RequestTimeout,
    #[error("{}", rejection.reason)]
    Rejected {
        rejection: Rejection,
        /// The policy that rejects it, for the header of the answer.
        policy: Option<HeaderValue>,
    },
    #[error(
        "the response `{id}` is not known to this router: it may have expired, or another router or client made it"
    )]
    ResponseUnknown { id: Box<str> },
    #[error("the response `{id}` is lost: the worker that made it has left")]
    ResponseLost { id: Box<str> },
    #[error("the worker that made the response `{id}` is not in service")]
    ResponseWorkerOut { id: Box<str> },
    #[error("there is nothing at `{path}`")]
    UnknownPath { path: Box<str> },
    #[error(
        "`{path}` is administration of an engine, which the router does not forward: send it to the worker itself"
    )]
    EngineAdministration { path: Box<str> },
    #[error("`{path}` takes {allow} only")]
    WrongMethod { path: Box<str>, allow: &'static str },
}

/// Status, type and code of an error.
type Class = (StatusCode, &'static str, &'static str);

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";
const BUSY: &str = "rate_limit_error";

impl Refusal {
    /// For a model that nobody serves, or for none at all.
    pub(crate) fn not_served(model: &str) -> Self {
        if model.is_empty() {
            return Self::ModelMissing;
        }
        Self::ModelNotFound { model: cut(model) }
    }

    fn class(&self) -> Class {
        match self {
            Self::NoKey | Self::WrongKey => (StatusCode::UNAUTHORIZED, INVALID, "invalid_api_key"),
            Self::FieldNotAllowed { .. } => (StatusCode::FORBIDDEN, INVALID, "field_not_allowed"),
            Self::Limited(limited) => (
                StatusCode::TOO_MANY_REQUESTS,
                limited.kind(),
                "rate_limit_exceeded",
            ),
            Self::BodyTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, INVALID, "body_too_large"),
            Self::BodyTooDeep { .. } => (StatusCode::BAD_REQUEST, INVALID, "body_too_deep"),
            Self::UrlTooLong { .. } => (StatusCode::URI_TOO_LONG, INVALID, "url_too_long"),
            Self::HeadersTooLarge { .. } | Self::TooManyHeaders { .. } => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                INVALID,
                "headers_too_large",
            ),
            Self::TransferCoding => (StatusCode::NOT_IMPLEMENTED, INVALID, "transfer_coding_unknown"),
            Self::Host => (StatusCode::BAD_REQUEST, INVALID, "host_invalid"),
            Self::Loop => (StatusCode::LOOP_DETECTED, SERVER, "loop_detected"),
            Self::ShuttingDown => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "shutting_down"),
            Self::BodyTimeout | Self::BodyGaveWay => (StatusCode::REQUEST_TIMEOUT, INVALID, "body_timeout"),
            Self::ConnectionsFull => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "connections_full"),
            Self::BodiesFull => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "bodies_full"),
            Self::AddressFull => (StatusCode::TOO_MANY_REQUESTS, BUSY, "address_full"),
            Self::MemoryFull => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "memory_full"),
            Self::BodyBroken(_) => (StatusCode::BAD_REQUEST, INVALID, "body_incomplete"),
            Self::BodyInvalid(_) | Self::BodyNotObject => (StatusCode::BAD_REQUEST, INVALID, "invalid_json"),
            Self::BodyNoForm(_) => (StatusCode::BAD_REQUEST, INVALID, "invalid_form"),
            Self::ModelNotFound { .. } => (StatusCode::NOT_FOUND, INVALID, "model_not_found"),
            Self::ModelMissing => (StatusCode::BAD_REQUEST, INVALID, "model_missing"),
            Self::PoolEmpty { .. } => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "pool_empty"),
            Self::OneSided { .. } => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "pool_one_sided"),
            Self::NoWorker(_) => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "no_worker_reachable"),
            Self::WorkerClosed(_) => (StatusCode::BAD_GATEWAY, SERVER, "worker_closed"),
            Self::WorkerConfused(_) => (StatusCode::BAD_GATEWAY, SERVER, "worker_bad_answer"),
            Self::WorkerSlow(_) | Self::PrefillSlow(_) => {
                (StatusCode::GATEWAY_TIMEOUT, SERVER, "worker_timeout")
            }
            Self::WorkerBrokeOff(IntakeError::Stalled { .. } | IntakeError::Slow { .. }) => {
                (StatusCode::GATEWAY_TIMEOUT, SERVER, "worker_timeout")
            }
            Self::WorkerBrokeOff(_) => (StatusCode::BAD_GATEWAY, SERVER, "worker_broke_off"),
            Self::NotHandedOver(_) => (StatusCode::BAD_GATEWAY, SERVER, "prompt_not_handed_over"),
            Self::EngineUnknown(_) => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "prefill_engine_unknown"),
            Self::Relayed(response) => (response.status(), SERVER, "worker_refused"),
            Self::DialectUnknown { .. } => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "dialect_unknown"),
            Self::CannotSplit { .. } => (StatusCode::BAD_REQUEST, INVALID, "cannot_be_split"),
            Self::Handshake(_) => (StatusCode::BAD_REQUEST, INVALID, "handshake_not_allowed"),
            Self::NoModels => (StatusCode::BAD_GATEWAY, SERVER, "no_models"),
            Self::QueueFull { .. } => (StatusCode::TOO_MANY_REQUESTS, BUSY, "queue_full"),
            Self::Shed { .. } => (StatusCode::TOO_MANY_REQUESTS, BUSY, "shed"),
            Self::TooSlow { .. } => (StatusCode::TOO_MANY_REQUESTS, BUSY, "too_slow"),
            Self::RequestTimeout => (StatusCode::GATEWAY_TIMEOUT, SERVER, "request_timeout"),
            Self::QueueTimeout { .. } => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "queue_timeout"),
            Self::Rejected { rejection, .. } => rejected(rejection.status),
            Self::ResponseUnknown { .. } => (StatusCode::NOT_FOUND, INVALID, "response_not_found"),
            Self::ResponseLost { .. } => (StatusCode::NOT_FOUND, INVALID, "response_lost"),
            Self::ResponseWorkerOut { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, SERVER, "response_worker_out")
            }
            Self::QueryInvalid(_) => (StatusCode::BAD_REQUEST, INVALID, "invalid_query"),
            Self::UpgradeRequired { .. } => (StatusCode::UPGRADE_REQUIRED, INVALID, "upgrade_required"),
            Self::UpgradeWithBody => (StatusCode::BAD_REQUEST, INVALID, "upgrade_with_body"),
            Self::UnknownPath { .. } => (StatusCode::NOT_FOUND, INVALID, "unknown_path"),
            Self::EngineAdministration { .. } => (StatusCode::FORBIDDEN, INVALID, "engine_administration"),
            Self::WrongMethod { .. } => (StatusCode::METHOD_NOT_ALLOWED, INVALID, "method_not_allowed"),
        }
    }

    /// As what the request is counted.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::NoWorker(_)
            | Self::PoolEmpty { .. }
            | Self::OneSided { .. }
            | Self::NoModels
            | Self::DialectUnknown { .. }
            | Self::ResponseWorkerOut { .. }
            | Self::EngineUnknown(_) => Outcome::Unreachable,
            Self::Relayed(_) => Outcome::Complete,
            Self::WorkerClosed(_)
            | Self::WorkerConfused(_)
            | Self::WorkerBrokeOff(_)
            | Self::NotHandedOver(_) => Outcome::UpstreamError,
            Self::WorkerSlow(_) | Self::PrefillSlow(_) => Outcome::FirstByteTimeout,
            Self::QueueFull { .. } => Outcome::QueueFull,
            Self::BodiesFull | Self::MemoryFull => Outcome::BodiesFull,
            Self::QueueTimeout { .. } => Outcome::QueueTimeout,
            Self::Shed { .. } => Outcome::Shed,
            Self::TooSlow { .. } => Outcome::TooSlow,
            Self::RequestTimeout => Outcome::RequestTimeout,
            Self::Rejected { .. } => Outcome::Rejected,
            Self::ShuttingDown => Outcome::ShutDown,
            Self::NoKey | Self::WrongKey => Outcome::Unauthorized,
            Self::Limited(_) => Outcome::Limited,
            _ => Outcome::Invalid,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NoWorker(_)
            | Self::PoolEmpty { .. }
            | Self::OneSided { .. }
            | Self::DialectUnknown { .. }
            | Self::EngineUnknown(_)
            | Self::ResponseWorkerOut { .. }
            | Self::BodiesFull
            | Self::MemoryFull
            | Self::AddressFull
            | Self::ConnectionsFull
            | Self::ShuttingDown => Some(COME_BACK),
            Self::QueueFull { after }
            | Self::QueueTimeout { after }
            | Self::Shed { after }
            | Self::TooSlow { after, .. } => Some(*after),
            Self::Limited(limited) => Some(limited.wait()),
            Self::Rejected { rejection, .. } if rejection.retry_after_ms > 0 => {
                Some(Duration::from_millis(rejection.retry_after_ms.into()))
            }
            _ => None,
        }
    }
}

/// What a client wrote, as far as it is said back to it.
pub(crate) fn cut(text: &str) -> Box<str> {
    if text.len() <= LONGEST_ECHO {
        return text.into();
    }
    let end = text.floor_char_boundary(LONGEST_ECHO);
    format!("{}…", &text[..end]).into()
}

/// Policies choose the status; the type follows from it.
fn rejected(status: u16) -> Class {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS => BUSY,
        _ if status.is_client_error() => INVALID,
        _ => SERVER,
    };
    (status, kind, "rejected_by_policy")
}

/// The answer to a request that is refused, in OpenAI's shape.
pub(crate) fn refuse(refusal: &Refusal) -> Response<Bytes> {
    refuse_in(ErrorShape::OpenAi, None, refusal)
}

/// The answer to a request that is refused, in the shape of its path. Anthropic's names the request.
pub(crate) fn refuse_in(shape: ErrorShape, id: Option<&HeaderValue>, refusal: &Refusal) -> Response<Bytes> {
    if let Refusal::Relayed(response) = refusal {
        return (**response).clone();
    }
    let (status, kind, code) = refusal.class();
    // What a worker did wrong was warned of where it happened.
    debug!(%status, code, error = refusal as &dyn std::error::Error, "a request is refused");
    let message = refusal.to_string();
    let of_model = matches!(refusal, Refusal::ModelNotFound { .. } | Refusal::ModelMissing);
    let param = of_model.then_some("model");
    let body = ErrorBody {
        message: &message,
        kind: kind_in(shape, status, kind),
        param,
        code,
    };
    let body = match shape {
        ErrorShape::Anthropic => body.to_anthropic_json(id.and_then(|id| id.to_str().ok())),
        ErrorShape::OpenAi | ErrorShape::Responses => body.to_json(),
    };
    let mut response = json(status, body);
    let headers = response.headers_mut();
    if let Some(after) = refusal.retry_after() {
        headers.insert(
            RETRY_AFTER,
            HeaderValue::from(after.as_millis().div_ceil(1_000) as u64),
        );
        headers.insert(RETRY_AFTER_MS, HeaderValue::from(after.as_millis() as u64 + 1));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Refusal::UpgradeRequired { .. } = refusal {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    if let Refusal::WrongMethod { allow, .. } = refusal {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    if let Refusal::Rejected {
        policy: Some(policy), ..
    } = refusal
    {
        headers.insert(X_CONDUCTOR_POLICY, policy.clone());
    }
    response
}

/// The type of an error in a shape.
fn kind_in(shape: ErrorShape, status: StatusCode, kind: &'static str) -> &'static str {
    match shape {
        ErrorShape::Anthropic => anthropic_error_kind(status.as_u16()),
        ErrorShape::OpenAi | ErrorShape::Responses => kind,
    }
}

/// The shape of errors at a path.
pub(crate) fn shape_of(path: &str) -> ErrorShape {
    Endpoint::of_path(path).map_or(ErrorShape::OpenAi, |endpoint| endpoint.spec().errors)
}

/// The same in a stream that has begun already.
pub(crate) fn event(endpoint: Endpoint, refusal: &Refusal) -> Vec<u8> {
    let (status, kind, code) = refusal.class();
    debug!(%status, code, error = refusal as &dyn std::error::Error, "a request is refused in its stream");
    let message = refusal.to_string();
    let body = ErrorBody {
        message: &message,
        kind: kind_in(endpoint.spec().errors, status, kind),
        param: None,
        code,
    };
    error_event(endpoint, &body)
}

/// What a worker said, where a stream has begun already.
pub(crate) fn relayed(endpoint: Endpoint, status: StatusCode, message: &str) -> Vec<u8> {
    let kind = if status.is_client_error() { INVALID } else { SERVER };
    let body = ErrorBody {
        message,
        kind: kind_in(endpoint.spec().errors, status, kind),
        param: None,
        code: "worker_refused",
    };
    error_event(endpoint, &body)
}

/// A JSON answer of the router's own.
pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// What is told in the middle of a stream that will not go on.
pub(crate) fn broken_off(endpoint: Endpoint, error: &RelayError) -> Vec<u8> {
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
    let body = ErrorBody {
        message,
        kind: kind_in(endpoint.spec().errors, status, SERVER),
        param: None,
        code,
    };
    error_event(endpoint, &body)
}

#[cfg(test)]
mod tests;
