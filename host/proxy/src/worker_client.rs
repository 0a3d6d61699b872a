//! Client of one worker for tools: questions of their own, over the connections, TLS and key that requests of its pool use.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use thiserror::Error;
use tokio::time::timeout;

use crate::authorization::Authorization;
use crate::forward::{self, ForwardLimits, Outgoing};
use crate::intake;
use crate::upstream::{ConnectionsSpec, Upstream, UrlError};

/// The client's entry in `Via`.
const VIA: HeaderValue = HeaderValue::from_static("1.1 conductor-check");

/// One worker, or a server beside it.
#[derive(Debug)]
pub struct WorkerClient {
    upstream: Upstream,
    authorization: Authorization,
    /// For one question, from connecting to the last byte of the answer.
    limit: Duration,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct WorkerReply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// When the question went out, by this machine's clock.
    pub sent: SystemTime,
    /// How long the whole answer took.
    pub took: Duration,
}

/// A question got no answer.
#[derive(Debug, Error)]
pub enum WorkerClientError {
    /// The path is none.
    #[error("use the path `{0}`")]
    Path(String),
    /// No answer began.
    #[error("get `{path}`")]
    Forward {
        /// What was asked for.
        path: String,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No whole answer came in time.
    #[error("get `{path}` within {limit:?}")]
    Timeout {
        /// What was asked for.
        path: String,
        /// The time there was.
        limit: Duration,
    },
    /// The answer broke off, or is longer than a page.
    #[error("read `{path}`")]
    Body {
        /// What was asked for.
        path: String,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Longest answer read, in bytes.
const LONGEST_ANSWER: usize = 4 << 20;

impl WorkerClient {
    /// A client of the worker at `url`, `http://host:port` or `https://host:port`; `limit` is for each question.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn new(
        url: &str,
        connections: &ConnectionsSpec,
        authorization: Authorization,
        limit: Duration,
    ) -> Result<Self, UrlError> {
        let upstream = Upstream::new(url)?;
        upstream.configure(connections, &VIA);
        Ok(Self {
            upstream,
            authorization,
            limit,
        })
    }

    /// `GET`.
    ///
    /// # Errors
    /// [`WorkerClientError`]; any status is an answer.
    pub async fn get(&self, path: &str) -> Result<WorkerReply, WorkerClientError> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// `POST` of JSON.
    ///
    /// # Errors
    /// [`WorkerClientError`]; any status is an answer.
    pub async fn post(&self, path: &str, json: Bytes) -> Result<WorkerReply, WorkerClientError> {
        self.ask(Method::POST, path, json).await
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<WorkerReply, WorkerClientError> {
        let target = PathAndQuery::try_from(path).map_err(|_| WorkerClientError::Path(path.to_owned()))?;
        let mut headers = HeaderMap::new();
        if method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        self.authorization.apply(&mut headers);
        let outgoing = Outgoing {
            method: &method,
            target: &target,
            headers: &headers,
            rank: None,
            once: false,
            body: &body,
        };
        let asked = timeout(self.limit, self.exchange(outgoing)).await;
        asked.unwrap_or_else(|_| {
            Err(WorkerClientError::Timeout {
                path: path.to_owned(),
                limit: self.limit,
            })
        })
    }

    async fn exchange(&self, outgoing: Outgoing<'_>) -> Result<WorkerReply, WorkerClientError> {
        let path = || outgoing.target.to_string();
        let limits = ForwardLimits {
            connect: self.limit,
            first_byte: self.limit,
        };
        let (sent, began) = (SystemTime::now(), Instant::now());
        let answer = forward::ask(&self.upstream, outgoing, limits).await;
        let (head, mut body) = answer
            .map_err(|error| WorkerClientError::Forward {
                path: path(),
                source: error.into(),
            })?
            .into_parts();
        let whole = intake::collect(&mut body, LONGEST_ANSWER, self.limit).await;
        let whole = whole.map_err(|error| WorkerClientError::Body {
            path: path(),
            source: error.into(),
        })?;
        self.upstream.checkin(body);
        Ok(WorkerReply {
            status: head.status,
            headers: head.headers,
            body: whole,
            sent,
            took: began.elapsed(),
        })
    }
}
