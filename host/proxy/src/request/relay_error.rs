//! Errors of an answer that breaks off, and the event that ends a stream then.

use std::time::Duration;

use http::StatusCode;
use inference_api::Endpoint;
use thiserror::Error;

use crate::base::reply;

/// Error of an answer that broke off.
#[derive(Debug, Error)]
pub(crate) enum RelayError {
    #[error("read on in the worker's answer")]
    Broken(#[source] Option<hyper::Error>),
    #[error("read on in the worker's answer: it was idle for {0:?}")]
    Idle(Duration),
    #[error("read on in the worker's answer: the request timed out")]
    TimedOut,
    #[error("read on in the worker's answer: the router is shutting down")]
    ShuttingDown,
}

/// Returns the error event of a stream that broke off after that many events.
pub(crate) fn broken_off_event(endpoint: Endpoint, error: &RelayError, events: u64) -> Vec<u8> {
    let (status, message, code) = match error {
        RelayError::Broken(_) => (
            StatusCode::BAD_GATEWAY,
            "the worker broke off its answer",
            "worker_broke_off",
        ),
        RelayError::Idle(_) => (
            StatusCode::GATEWAY_TIMEOUT,
            "the worker stopped answering",
            "worker_timeout",
        ),
        RelayError::TimedOut => (
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
    reply::stream_error(endpoint, status, message, code, events)
}
