//! Errors of an attempt, and the blame they put on workers.

use bytes::Bytes;
use http::{Response, StatusCode};
use routing::WorkerId;
use thiserror::Error;
use worker_client::{ReadError, SendError};

use crate::base::reply::Refusal;
use crate::dispatch::split::leg_error::LegError;

/// Error of an attempt that failed before any of its answer reached the client.
#[derive(Debug, Error)]
pub(crate) enum AttemptError {
    #[error(transparent)]
    Forward(#[from] SendError),
    #[error("read the answer to its end")]
    BrokeOff(#[source] ReadError<hyper::Error>),
    /// The worker's error response.
    #[error("get a good answer: the worker answered {}", .0.status())]
    Refused(Box<Response<Bytes>>),
    /// The worker's response of a status that the pool retries. The retry is paid for.
    #[error("get a good answer: the worker answered {}, which is retried", .0.status())]
    HeldBack(Box<Response<Bytes>>),
    /// The worker's response to a model that it does not serve.
    #[error("get a good answer: the worker does not serve the model, and answered {}", .0.status())]
    NotServed(Box<Response<Bytes>>),
    /// A leg of a split request failed, not the connection to a worker.
    #[error(transparent)]
    Leg(#[from] LegError),
}

impl AttemptError {
    /// Returns the error of a response that is held back, because its status is one that the pool retries.
    pub(crate) fn held_back(self) -> Self {
        match self {
            Self::Refused(response) => Self::HeldBack(response),
            error => error,
        }
    }

    /// Returns `true` if another worker may be tried.
    pub(crate) fn may_go_elsewhere(&self) -> bool {
        match self {
            Self::Forward(error) => error.may_go_elsewhere(),
            Self::BrokeOff(error) => !matches!(error, ReadError::Stalled { .. }),
            Self::Refused(response) => is_retryable_status(response.status()),
            Self::HeldBack(_) | Self::NotServed(_) => true,
            Self::Leg(error) => error.may_go_elsewhere(),
        }
    }

    /// Returns `true` if the worker failed. Otherwise it answered, and refused the request itself.
    pub(crate) fn is_the_workers(&self) -> bool {
        match self {
            Self::Refused(response) | Self::HeldBack(response) => is_retryable_status(response.status()),
            Self::NotServed(_) => false,
            _ => true,
        }
    }

    /// Returns `true` if the error does not count against the worker. The same worker may be tried again.
    pub(crate) fn is_blameless(&self) -> bool {
        match self {
            Self::Forward(error) => error.is_blameless(),
            Self::Leg(error) => error.is_blameless(),
            _ => false,
        }
    }

    /// Returns `true` if no worker can have computed anything for the attempt. A retry then adds nothing to their load.
    pub(crate) fn cost_nothing(&self) -> bool {
        match self {
            Self::Forward(SendError::Connect(_) | SendError::KeptClosed(_)) | Self::NotServed(_) => true,
            Self::Leg(error) => error.cost_nothing(),
            _ => false,
        }
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

    /// Returns `true` if the worker cannot hold the prompt because of the attempt.
    pub(crate) fn left_no_prompt(&self) -> bool {
        match self {
            Self::Refused(response) | Self::HeldBack(response) | Self::NotServed(response) => {
                leaves_no_prompt(response.status())
            }
            error => error.cost_nothing(),
        }
    }

    /// Returns `true` if the worker is finished with the leg: it was not reached, or has answered.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Forward(SendError::Connect(_)) | Self::Refused(_) | Self::HeldBack(_) | Self::NotServed(_)
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
    /// Set if the worker that was to compute the prompt may hold it.
    pub(crate) has_prompt: bool,
    pub(crate) error: AttemptError,
}

/// Returns `true` for a status of a busy or broken worker (429, 5xx), where another worker may do better. Other
/// statuses concern the client's request.
pub(crate) fn is_retryable_status(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// Returns `true` if a worker that answers so has not computed the prompt: it refused the request.
pub(crate) fn leaves_no_prompt(status: StatusCode) -> bool {
    status.is_client_error() || status == StatusCode::SERVICE_UNAVAILABLE
}

impl From<AttemptError> for Refusal {
    fn from(error: AttemptError) -> Self {
        match error {
            AttemptError::Forward(error) => error.into(),
            AttemptError::BrokeOff(error) => Self::WorkerBrokeOff(error),
            AttemptError::Refused(response)
            | AttemptError::HeldBack(response)
            | AttemptError::NotServed(response) => Self::Relayed(response),
            AttemptError::Leg(error) => error.into(),
        }
    }
}
