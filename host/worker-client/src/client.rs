//! Client for tools and discovery: whole requests and responses, with one time limit per request.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use thiserror::Error;
use tokio::time::timeout;

use crate::address::UrlError;
use crate::authorization::Authorization;
use crate::connection::WorkerBody;
use crate::pool::{ConnectionPool, ConnectionsSpec};
use crate::send::{ConnectionReuse, OutgoingRequest, SendTimeouts};
use crate::server_error::ServerClientError;
use crate::tls::WorkerTls;

/// Entry in `Via` of requests to a pool's workers.
const VIA: HeaderValue = HeaderValue::from_static("1.1 conductor-check");
/// Default limit of a response body, in bytes.
const MAX_RESPONSE: usize = 4 << 20;

/// Client of one worker, or of another HTTP server.
#[derive(Debug)]
pub struct WorkerClient {
    pool: ConnectionPool,
    authorization: Authorization,
    /// Time limit per request, from connecting to the last byte of the response.
    limit: Duration,
    /// Maximum size of a response body, in bytes.
    max_response: usize,
}

/// Complete response.
#[derive(Debug, Clone)]
pub struct WorkerReply {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
    /// Address of the server.
    pub peer: IpAddr,
    /// Send time, by this machine's clock.
    pub sent: SystemTime,
    /// Duration of the whole exchange.
    pub took: Duration,
}

/// Error of a request without a complete response.
#[derive(Debug, Error)]
pub enum WorkerClientError {
    /// The path is malformed.
    #[error("use the path `{0}`")]
    Path(String),
    /// No response began.
    #[error("request `{path}`")]
    Forward {
        /// Requested path.
        path: String,
        /// Cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The time limit was exceeded.
    #[error("get the answer of `{path}` within {limit:?}")]
    Timeout {
        /// Requested path.
        path: String,
        /// The limit.
        limit: Duration,
    },
    /// The response ended early, or exceeds the size limit.
    #[error("read the answer of `{path}`")]
    Body {
        /// Requested path.
        path: String,
        /// Cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl WorkerClient {
    /// Creates a client of a pool's worker at `url`: `http://host:port` or `https://host:port`.
    ///
    /// `limit` is the time limit per request.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn new(
        url: &str,
        connections: &ConnectionsSpec,
        authorization: Authorization,
        limit: Duration,
    ) -> Result<Self, UrlError> {
        let pool = ConnectionPool::new(url)?;
        pool.configure(connections, &VIA);
        Ok(Self {
            pool,
            authorization,
            limit,
            max_response: MAX_RESPONSE,
        })
    }

    /// Creates a client of another server at `url`, with default connections and without headers of its own.
    ///
    /// The system's authorities are trusted if it is `https://`.
    ///
    /// # Errors
    /// [`ServerClientError`].
    pub fn of_server(url: &str, limit: Duration) -> Result<Self, ServerClientError> {
        Self::of_server_with(url, None, limit)
    }

    /// Creates a client like [`Self::of_server`], with these TLS settings. `None` means the system's authorities.
    ///
    /// # Errors
    /// [`ServerClientError`].
    pub fn of_server_with(
        url: &str,
        tls: Option<Arc<WorkerTls>>,
        limit: Duration,
    ) -> Result<Self, ServerClientError> {
        Ok(Self {
            pool: ConnectionPool::of_server(url, tls)?,
            authorization: Authorization::Pass,
            limit,
            max_response: MAX_RESPONSE,
        })
    }

    /// Sets the handling of `Authorization`.
    #[must_use]
    pub fn with_authorization(mut self, authorization: Authorization) -> Self {
        self.authorization = authorization;
        self
    }

    /// Sets the maximum size of a response body, in bytes.
    #[must_use]
    pub fn with_max_response(mut self, bytes: usize) -> Self {
        self.max_response = bytes;
        self
    }

    /// Sends a `GET` request.
    ///
    /// # Errors
    /// [`WorkerClientError`]. No status is an error.
    pub async fn get(&self, path: &str) -> Result<WorkerReply, WorkerClientError> {
        self.send(Method::GET, path, HeaderMap::new(), Bytes::new()).await
    }

    /// Sends a `POST` request with a JSON body.
    ///
    /// # Errors
    /// [`WorkerClientError`]. No status is an error.
    pub async fn post(&self, path: &str, json: Bytes) -> Result<WorkerReply, WorkerClientError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.send(Method::POST, path, headers, json).await
    }

    /// Sends a request with headers and body.
    ///
    /// # Errors
    /// [`WorkerClientError`]. No status is an error.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<WorkerReply, WorkerClientError> {
        let target = PathAndQuery::try_from(path).map_err(|_| WorkerClientError::Path(path.to_owned()))?;
        let request = self.request(&method, &target, &headers, &body);
        let reply = timeout(self.limit, self.exchange(request)).await;
        reply.unwrap_or_else(|_| {
            Err(WorkerClientError::Timeout {
                path: path.to_owned(),
                limit: self.limit,
            })
        })
    }

    /// Sends a `GET` request and returns its response as soon as the head has arrived. The time limit ends there.
    ///
    /// # Errors
    /// [`WorkerClientError`]. No status is an error.
    pub async fn open(
        &self,
        path: &str,
        headers: HeaderMap,
    ) -> Result<Response<WorkerBody>, WorkerClientError> {
        let target = PathAndQuery::try_from(path).map_err(|_| WorkerClientError::Path(path.to_owned()))?;
        let body = Bytes::new();
        let request = self.request(&Method::GET, &target, &headers, &body);
        let timeouts = SendTimeouts {
            connect: self.limit,
            first_byte: self.limit,
        };
        let response = self.pool.query(request, timeouts).await;
        response.map_err(|error| WorkerClientError::Forward {
            path: path.to_owned(),
            source: error.into(),
        })
    }

    fn request<'a>(
        &'a self,
        method: &'a Method,
        target: &'a PathAndQuery,
        headers: &'a HeaderMap,
        body: &'a Bytes,
    ) -> OutgoingRequest<'a> {
        OutgoingRequest {
            method,
            target,
            headers,
            authorization: &self.authorization,
            rank: None,
            reuse: ConnectionReuse::WithRetry,
            traceparent: None,
            body,
        }
    }

    async fn exchange(&self, request: OutgoingRequest<'_>) -> Result<WorkerReply, WorkerClientError> {
        let path = || request.target.to_string();
        let timeouts = SendTimeouts {
            connect: self.limit,
            first_byte: self.limit,
        };
        let (sent, began) = (SystemTime::now(), Instant::now());
        let response = self.pool.query(request, timeouts).await;
        let (head, mut body) = response
            .map_err(|error| WorkerClientError::Forward {
                path: path(),
                source: error.into(),
            })?
            .into_parts();
        let whole = Limited::new(&mut body, self.max_response).collect().await;
        let whole = whole.map_err(|source| WorkerClientError::Body { path: path(), source })?;
        let peer = body.peer();
        self.pool.checkin(body);
        Ok(WorkerReply {
            status: head.status,
            headers: head.headers,
            body: whole.to_bytes(),
            peer,
            sent,
            took: began.elapsed(),
        })
    }
}
