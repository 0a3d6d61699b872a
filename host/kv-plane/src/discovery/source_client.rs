//! HTTP client that queries workers for their event sources, and servers for a page.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use inference_api::{EventSource, EventSourcesError, sglang_event_sources, vllm_event_sources};
use thiserror::Error;
use worker_client::tls::WorkerTls;
use worker_client::{Authorization, WorkerClient, WorkerClientError};

use super::endpoint_trust;

/// Timeout of one page, from connecting to the last byte.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest page read, in bytes. vLLM's `/server_info` has 26 KB, its `/metrics` 54 KB for each rank.
const LONGEST_PAGE: usize = 4 << 20;

/// Answer of a worker.
#[derive(Debug)]
pub enum SourceAnswer {
    /// Event sources; none if it reports that it publishes nothing.
    Sources(Vec<EventSource>),
    /// The worker has no page with event sources.
    Absent,
    /// The query failed, or its answer has another form.
    Failed(SourceError),
}

/// Error of a query for a page.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The address is not a URL.
    #[error("use the address `{0}`")]
    Address(String),
    /// The request failed.
    #[error("get `{page}`")]
    Request {
        /// Path of the page.
        page: &'static str,
        /// Error of the client.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer took too long.
    #[error("get `{0}` within {PATIENCE:?}")]
    Timeout(&'static str),
    /// The worker lacks the key.
    #[error("get `{page}`: the worker answered {status}: set the pool's `authorization` to its key")]
    Unauthorized {
        /// Path of the page.
        page: &'static str,
        /// Status of the answer.
        status: StatusCode,
    },
    /// The status is not 200.
    #[error("get `{page}`: the worker answered {status}")]
    Refused {
        /// Path of the page.
        page: &'static str,
        /// Status of the answer.
        status: StatusCode,
    },
    /// The body could not be read.
    #[error("read `{page}`")]
    Body {
        /// Path of the page.
        page: &'static str,
        /// Error of the connection.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The page has another form than expected.
    #[error("understand `{page}`")]
    Senseless {
        /// Path of the page.
        page: &'static str,
        /// Error of the parser.
        #[source]
        source: EventSourcesError,
    },
}

/// TLS settings of a worker's pages; `None` for the system's authorities. Equal ones are the same: unchanged files keep
/// their settings over reloads.
#[derive(Debug, Clone, Default)]
pub struct PageTls(pub Option<Arc<WorkerTls>>);

impl PartialEq for PageTls {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }
}

impl Eq for PageTls {}

/// Client that keeps no connections, since it rarely queries a worker twice.
#[derive(Debug, Default)]
pub struct SourceClient;

type Reader = fn(&[u8], &str) -> Result<Vec<EventSource>, EventSourcesError>;

/// Pages with event sources and their parsers, in the order of the queries.
const PAGES: [(&str, Reader); 2] = [
    ("/kv_event_sources", vllm_event_sources),
    ("/server_info", sglang_event_sources),
];

impl SourceClient {
    /// Returns a client.
    #[must_use]
    pub fn new() -> Self {
        Self
    }

    /// Queries the worker at `url`, `http://host:port` or `https://host:port`. An engine has one of the pages; the
    /// first with a source counts. `tls` and `authorization` are those of its pool.
    pub async fn event_sources(
        &self,
        url: &str,
        tls: &PageTls,
        authorization: &Authorization,
    ) -> SourceAnswer {
        let host = host_of(url);
        let mut answer = SourceAnswer::Absent;
        for (page, read) in PAGES {
            match self.fetch(url, page, tls, authorization).await {
                Ok(Some(Page { body, from })) => match read(&body, host) {
                    Ok(sources) if sources.is_empty() => answer = SourceAnswer::Sources(sources),
                    Ok(sources) => return SourceAnswer::Sources(at_own_host(sources, from, host)),
                    Err(source) => answer = SourceAnswer::Failed(SourceError::Senseless { page, source }),
                },
                Ok(None) => {}
                Err(error) => return SourceAnswer::Failed(error),
            }
        }
        answer
    }

    /// Returns a page of the server at `url`, if it exists.
    pub(super) async fn get(
        &self,
        url: &str,
        page: &'static str,
        tls: &PageTls,
        authorization: &Authorization,
    ) -> Result<Option<Bytes>, SourceError> {
        let page = self.fetch(url, page, tls, authorization).await?;
        Ok(page.map(|page| page.body))
    }

    /// Returns a page with the address that it came from.
    async fn fetch(
        &self,
        url: &str,
        page: &'static str,
        tls: &PageTls,
        authorization: &Authorization,
    ) -> Result<Option<Page>, SourceError> {
        let client = WorkerClient::of_server_with(url, tls.0.clone(), PATIENCE)
            .map_err(|_| SourceError::Address(format!("{url}{page}")))?
            .with_authorization(authorization.clone())
            .with_max_response(LONGEST_PAGE);
        let reply = client
            .get(page)
            .await
            .map_err(|error| source_error(page, error))?;
        match reply.status {
            StatusCode::OK => Ok(Some(Page {
                body: reply.body,
                from: reply.peer,
            })),
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Ok(None),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(SourceError::Unauthorized { page, status })
            }
            status => Err(SourceError::Refused { page, status }),
        }
    }
}

/// Converts an error of the HTTP client.
fn source_error(page: &'static str, error: WorkerClientError) -> SourceError {
    match error {
        WorkerClientError::Path(path) => SourceError::Address(path),
        WorkerClientError::Forward { source, .. } => SourceError::Request { page, source },
        WorkerClientError::Timeout { .. } => SourceError::Timeout(page),
        WorkerClientError::Body { source, .. } => SourceError::Body { page, source },
    }
}

/// Page, and the address that it came from.
struct Page {
    body: Bytes,
    from: IpAddr,
}

/// Names the worker's own host in sources at the address of the answer.
fn at_own_host(sources: Vec<EventSource>, from: IpAddr, host: &str) -> Vec<EventSource> {
    let own = |source| endpoint_trust::at_own_host(source, from, host);
    sources.into_iter().map(own).collect()
}

/// Returns the host of `http://host:port` or `https://host:port`, IPv6 in brackets.
pub(super) fn host_of(url: &str) -> &str {
    let authority = url.split_once("://").map_or(url, |(_, authority)| authority);
    authority.rsplit_once(':').map_or(authority, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    /// Starts a server whose pages need a key. Returns its URL and its task.
    async fn behind_a_key(key: &'static str) -> (String, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                let length = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..length]).to_ascii_lowercase();
                let status = if head.contains(&format!("authorization: bearer {key}\r\n")) {
                    "404 Not Found"
                } else {
                    "401 Unauthorized"
                };
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (url, serving)
    }

    #[tokio::test]
    async fn pages_are_queried_with_the_pools_key() {
        let (url, _serving) = behind_a_key("k").await;
        let own = Authorization::bearer("k").unwrap();
        let plain = PageTls::default();
        let answer = SourceClient::new().event_sources(&url, &plain, &own).await;
        assert!(matches!(answer, SourceAnswer::Absent), "{answer:?}");
        let answer = SourceClient::new()
            .event_sources(&url, &plain, &Authorization::Pass)
            .await;
        let SourceAnswer::Failed(error) = answer else {
            panic!("{answer:?}")
        };
        assert!(error.to_string().contains("`authorization`"), "{error}");
    }

    #[test]
    fn the_host_of_a_worker_is_the_part_before_its_port() {
        assert_eq!(host_of("http://gpu-1:8000"), "gpu-1");
        assert_eq!(host_of("http://[::1]:8000"), "[::1]");
        assert_eq!(host_of("https://gpu-1:443"), "gpu-1");
    }
}
