//! Client of an HTTP server of workers: its token and its authorities may change while it is used.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, StatusCode};
use local_files::regular_file::read_bounded;
use worker_client::tls::{WorkerTls, WorkerTlsParts};
use worker_client::{
    Authorization, ConnectionPool, ConnectionReuse, ConnectionsSpec, OutgoingRequest, SendTimeouts,
    WorkerBody, WorkerClient, WorkerReply,
};

use crate::error::SourceError;
use crate::spec::{Bearer, ServerSource};

/// Most bytes of a token.
const LONGEST_TOKEN: u64 = 64 << 10;
/// Most bytes of a file of authorities.
const LONGEST_CA: u64 = 4 << 20;

/// Client of one server.
#[derive(Debug)]
pub(crate) struct SourceClient {
    server: ServerSource,
    timeout: Duration,
    max_bytes: usize,
    /// Connections, with the authorities that they were made with.
    made: Mutex<Option<(Vec<u8>, Arc<Connections>)>>,
}

/// Connections with one set of authorities.
#[derive(Debug)]
struct Connections {
    client: WorkerClient,
    /// For watches, whose bodies are read while they arrive.
    pool: ConnectionPool,
}

impl SourceClient {
    /// Creates a client. Nothing is sent, and no file is read.
    pub(crate) fn new(server: &ServerSource, timeout: Duration, max_bytes: usize) -> Self {
        Self {
            server: server.clone(),
            timeout,
            max_bytes,
            made: Mutex::default(),
        }
    }

    /// Sends a `GET` request, and returns the whole answer.
    ///
    /// # Errors
    /// [`SourceError`]. No status is an error.
    pub(crate) async fn get(&self, path: &str) -> Result<WorkerReply, SourceError> {
        let (connections, headers) = self.prepare().await?;
        let sent = connections
            .client
            .send(Method::GET, path, headers, bytes::Bytes::new())
            .await;
        Ok(sent?)
    }

    /// Sends a `GET` request, and returns its body as it arrives.
    ///
    /// # Errors
    /// [`SourceError`], also [`SourceError::Status`] for a status other than 200.
    pub(crate) async fn open(&self, path: &str) -> Result<WorkerBody, SourceError> {
        let (connections, headers) = self.prepare().await?;
        let target = PathAndQuery::try_from(path).map_err(|_| SourceError::Path)?;
        let request = OutgoingRequest {
            method: &Method::GET,
            target: &target,
            headers: &headers,
            authorization: &Authorization::Pass,
            rank: None,
            body: &bytes::Bytes::new(),
            traceparent: None,
            reuse: ConnectionReuse::WithRetry,
        };
        let timeouts = SendTimeouts {
            connect: self.timeout,
            first_byte: self.timeout,
        };
        let response = connections.pool.query(request, timeouts).await;
        let response: Response<WorkerBody> = response.map_err(SourceError::Watch)?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status => Err(SourceError::Status(status)),
        }
    }

    /// Returns the connections and the headers of a request, with the authorities and the token as they are now.
    async fn prepare(&self) -> Result<(Arc<Connections>, HeaderMap), SourceError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        match &self.server.bearer {
            Bearer::None => {}
            Bearer::Known(authorization) => authorization.apply(&mut headers),
            Bearer::File(path) => {
                let token = read_file(path.clone(), "the token", LONGEST_TOKEN).await?;
                let token = String::from_utf8_lossy(&token);
                let bearer = Authorization::bearer(token.trim()).map_err(SourceError::Token)?;
                bearer.apply(&mut headers);
            }
        }
        let authorities = match &self.server.ca {
            Some(path) => read_file(path.clone(), "the authorities", LONGEST_CA).await?,
            None => Vec::new(),
        };
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, connections)) = &*made
            && *before == authorities
        {
            return Ok((Arc::clone(connections), headers));
        }
        let connections = Arc::new(self.connect(&authorities)?);
        *made = Some((authorities, Arc::clone(&connections)));
        Ok((connections, headers))
    }

    /// Makes the connection pools. No connection is opened.
    fn connect(&self, authorities: &[u8]) -> Result<Connections, SourceError> {
        let tls = match self.server.url.starts_with("https://") {
            true => {
                let parts = WorkerTlsParts {
                    authorities: self.server.ca.as_ref().map(|_| authorities),
                    ..WorkerTlsParts::default()
                };
                Some(Arc::new(WorkerTls::new(parts).map_err(SourceError::Tls)?))
            }
            false => None,
        };
        let spec = ConnectionsSpec {
            idle: 1,
            tls,
            ..ConnectionsSpec::default()
        };
        let client = WorkerClient::new(&self.server.url, &spec, Authorization::Pass, self.timeout);
        let pool = ConnectionPool::new(&self.server.url).map_err(SourceError::Url)?;
        pool.configure(&spec, &HeaderValue::from_static("1.1 conductor"));
        Ok(Connections {
            client: client
                .map_err(SourceError::Url)?
                .with_max_response(self.max_bytes),
            pool,
        })
    }
}

/// Reads a file off the tasks of the sources: a network mount may block.
pub(crate) async fn read_file(path: PathBuf, what: &'static str, most: u64) -> Result<Vec<u8>, SourceError> {
    let read = tokio::task::spawn_blocking(move || {
        read_bounded(&path, most).map_err(|source| SourceError::File { what, path, source })
    });
    read.await.map_err(|_| SourceError::Thread)?
}
