//! Fetch of a whole page of a worker, by a request of the router's own.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use thiserror::Error;

use crate::authorization::Authorization;
use crate::pool::ConnectionPool;
use crate::read::{ReadError, read_body};
use crate::send::{ConnectionReuse, OutgoingRequest, SendError, SendTimeouts};

/// Error of a page that was not received in full.
#[derive(Debug, Error)]
pub enum PageError {
    /// No response began.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The body is incomplete or too long.
    #[error(transparent)]
    Read(#[from] ReadError<hyper::Error>),
}

impl ConnectionPool {
    /// Fetches a page of at most `longest` bytes, whatever its status. `timeouts.first_byte` is also the timeout for
    /// each part of the body.
    ///
    /// # Errors
    /// [`PageError`]. No status is an error.
    pub async fn page(
        &self,
        page: &PathAndQuery,
        headers: &HeaderMap,
        authorization: &Authorization,
        timeouts: SendTimeouts,
        longest: usize,
    ) -> Result<(StatusCode, Bytes), PageError> {
        let outgoing = OutgoingRequest {
            method: &Method::GET,
            target: page,
            headers,
            authorization,
            rank: None,
            reuse: ConnectionReuse::WithRetry,
            traceparent: None,
            body: &Bytes::new(),
        };
        let answer = self.query(outgoing, timeouts).await?;
        let status = answer.status();
        let mut body = answer.into_body();
        let text = read_body(&mut body, longest, timeouts.first_byte).await?;
        self.checkin(body);
        Ok((status, text))
    }
}
