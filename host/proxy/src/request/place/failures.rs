//! Failures that a front end reports: of an attempt, and of an answer.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use worker_client::{ConnectError, SendError};

use crate::request::relay_error::RelayError;

/// Attempt that brought no answer for the client.
#[derive(Debug)]
pub enum SendFailure {
    /// No connection could be opened.
    Unreachable(io::Error),
    /// The worker closed the connection before the response head.
    Closed,
    /// No response head came within this time.
    Timeout(Duration),
    /// The worker answered with a status for which
    /// [`PlacedHandle::retries_status`](super::PlacedHandle::retries_status) returned `true`. The body was read in
    /// full.
    Refused(Box<Response<Bytes>>),
}

/// Answer that did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerFailure {
    /// The worker broke off the body.
    Broken,
    /// Nothing came for this time.
    Idle(Duration),
}

impl SendFailure {
    /// Returns the error, or the worker's answer.
    pub(super) fn into_error(self, url: &str) -> Result<SendError, Box<Response<Bytes>>> {
        Ok(match self {
            Self::Unreachable(source) => SendError::Connect(ConnectError::Io {
                address: url.into(),
                source,
            }),
            Self::Closed => SendError::Closed(None),
            Self::Timeout(limit) => SendError::FirstByteTimeout(limit),
            Self::Refused(response) => return Err(response),
        })
    }
}

impl From<AnswerFailure> for RelayError {
    fn from(failure: AnswerFailure) -> Self {
        match failure {
            AnswerFailure::Broken => Self::Broken(None),
            AnswerFailure::Idle(limit) => Self::Idle(limit),
        }
    }
}
