//! Refusals: every reason for which the router answers instead of a worker, made of plain values.
//!
//! Other modules convert their errors to refusals; this one depends on none of them.

use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{Response, StatusCode};
use inference_api::{BodyError, FormError, HandshakeError, QueryError};
use routing::{Rejection, Role};
use thiserror::Error;
use worker_client::{ReadError, SendError};

use crate::base::label::Outcome;

/// Time after which a client can retry when capacity or workers are missing.
const COME_BACK: Duration = Duration::from_secs(1);
/// Maximum length of a client's text in messages and logs, in bytes.
pub(super) const MAX_ECHO: usize = 256;

/// Internal cause of a refusal, for the log.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Reason for a response of the router's own. Its text is the message to the client.
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
    #[error("the request body arrived too slowly while other requests waited for buffer space")]
    BodyGaveWay,
    #[error("the buffer for request bodies is full")]
    BodiesFull,
    #[error("too many concurrent requests from this client address")]
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
    #[error("the router has reached its limit of connections")]
    ConnectionsFull,
    #[error("the router is shutting down")]
    ShuttingDown,
    #[error("the request body could not be read")]
    BodyBroken(#[source] Cause),
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
    #[error("a WebSocket request has no body")]
    UpgradeWithBody,
    #[error("the model `{model}` does not exist")]
    ModelNotFound { model: Box<str> },
    #[error("the request names no model, and the router cannot determine it: name it as `model`")]
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
    PrefillSlow(#[source] Cause),
    #[error("the worker's answer could not be read to its end")]
    WorkerBrokeOff(#[source] ReadError<hyper::Error>),
    #[error("the prefill worker did not hand the prompt over")]
    NotHandedOver(#[source] Cause),
    #[error("no prefill worker reported its engine id or bootstrap port")]
    EngineUnknown(#[source] Cause),
    /// Response of the last attempted worker.
    #[error("the worker refused the request")]
    Relayed(Box<Response<Bytes>>),
    #[error("the pool `{pool}` has no {} worker", missing.as_str())]
    OneSided { pool: Box<str>, missing: Role },
    #[error(
        "the pool `{pool}` answers with two workers, and this request (by its endpoint, a batch, `n`, `echo`, \
         log-probabilities of the prompt or beam search) can only be answered by one"
    )]
    CannotSplit { pool: Box<str> },
    #[error("the prefill/decode dialect of the pool `{pool}` is not yet detected")]
    DialectUnknown { pool: Box<str> },
    #[error("the router does not {0}")]
    Handshake(HandshakeError),
    #[error("no worker reported its models")]
    NoModels,
    #[error("too many requests are waiting for a worker")]
    QueueFull { after: Duration },
    #[error("no worker became free in time")]
    QueueTimeout { after: Duration },
    #[error("the request was shed for one of higher priority")]
    Shed { after: Duration },
    #[error("the request was not begun: {slow}")]
    TooSlow { slow: TooSlow, after: Duration },
    #[error("the request was not answered in the time it has")]
    RequestTimeout,
    #[error("{}", rejection.reason)]
    Rejected {
        rejection: Rejection,
        /// Rejecting policy, for the response header.
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
    #[error("unknown path `{path}`")]
    UnknownPath { path: Box<str> },
    #[error(
        "`{path}` is administration of an engine, which the router does not forward: send it to the worker itself"
    )]
    EngineAdministration { path: Box<str> },
    #[error("`{path}` takes {allow} only")]
    WrongMethod { path: Box<str>, allow: &'static str },
}

/// Status, type and code of an error.
pub(super) type Class = (StatusCode, &'static str, &'static str);

pub(super) const INVALID: &str = "invalid_request_error";
pub(super) const SERVER: &str = "server_error";
const BUSY: &str = "rate_limit_error";

impl Refusal {
    /// Returns the refusal for a model that no worker serves, or for a missing model.
    pub(crate) fn not_served(model: &str) -> Self {
        if model.is_empty() {
            return Self::ModelMissing;
        }
        Self::ModelNotFound { model: cut(model) }
    }

    /// Returns status, type and code.
    pub(super) fn class(&self) -> Class {
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
            Self::WorkerBrokeOff(ReadError::Stalled { .. }) => {
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

    /// Returns the status.
    pub(crate) fn status(&self) -> StatusCode {
        self.class().0
    }

    /// Returns the code.
    pub(crate) fn code(&self) -> &'static str {
        self.class().2
    }

    /// Returns the outcome for metrics.
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

    /// Returns the value of `retry-after`.
    pub(super) fn retry_after(&self) -> Option<Duration> {
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

/// Truncates a client's text for messages.
pub(crate) fn cut(text: &str) -> Box<str> {
    if text.len() <= MAX_ECHO {
        return text.into();
    }
    let end = text.floor_char_boundary(MAX_ECHO);
    format!("{}…", &text[..end]).into()
}

/// Returns the class of a policy's rejection. The type follows from the status.
fn rejected(status: u16) -> Class {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS => BUSY,
        _ if status.is_client_error() => INVALID,
        _ => SERVER,
    };
    (status, kind, "rejected_by_policy")
}

/// Route target that a request is expected to miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum TooSlow {
    #[error("its first token would come too late")]
    FirstToken,
    #[error("its tokens would come too slowly")]
    Tokens,
}

/// Exceeded limit of a client.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Limited {
    #[error("the rate limit of {limit} requests a minute is reached: try again in {}", seconds(*wait))]
    Requests { limit: u32, wait: Duration },
    #[error("the rate limit of {limit} tokens a minute is reached: try again in {}", seconds(*wait))]
    Tokens { limit: u32, wait: Duration },
    #[error("the limit of concurrent requests, {most}, is reached: try again when one has ended")]
    Concurrent { most: u32 },
}

impl Limited {
    /// Returns the time until a retry can succeed.
    pub(crate) fn wait(&self) -> Duration {
        match self {
            Self::Requests { wait, .. } | Self::Tokens { wait, .. } => *wait,
            Self::Concurrent { .. } => Duration::from_secs(1),
        }
    }

    /// Returns OpenAI's error type.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Requests { .. } | Self::Concurrent { .. } => "requests",
            Self::Tokens { .. } => "tokens",
        }
    }
}

/// Formats a time in seconds.
fn seconds(wait: Duration) -> String {
    format!("{:.3} s", wait.as_secs_f64())
}

impl From<HandshakeError> for Refusal {
    fn from(error: HandshakeError) -> Self {
        Self::Handshake(error)
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Invalid { source } => Self::BodyInvalid(source),
            BodyError::NotAnObject => Self::BodyNotObject,
            BodyError::Form { source } => Self::BodyNoForm(source),
            BodyError::Query { source } => Self::QueryInvalid(source),
        }
    }
}

/// Conversion for the last attempt of a request.
impl From<SendError> for Refusal {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Connect(_) => Self::NoWorker(Some(error)),
            SendError::Closed(_) | SendError::KeptClosed(_) => Self::WorkerClosed(error),
            SendError::BadAnswer(_) | SendError::UnexpectedUpgrade | SendError::TwoFramings => {
                Self::WorkerConfused(error)
            }
            SendError::FirstByteTimeout(_) => Self::WorkerSlow(error),
        }
    }
}
