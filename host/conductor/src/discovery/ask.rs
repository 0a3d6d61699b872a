//! Asking a server for a page, and a worker where it publishes its KV events.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{HttpConnector, HttpInfo};
use hyper_util::rt::TokioExecutor;
use inference_api::{EventSource, EventSourcesError, sglang_event_sources, vllm_event_sources};
use thiserror::Error;
use tokio::time::timeout;

use super::trust;

/// For one page, from connecting to its last byte.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest page read, in bytes: vLLM's `/server_info` has 26 KB.
const LONGEST_PAGE: usize = 1 << 20;

/// What a worker told.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Where it publishes; nothing where it says so itself.
    Sources(Vec<EventSource>),
    /// It has no page that tells.
    Absent,
    /// It could not be asked, or not be understood.
    Failed(AskError),
}

/// A worker was asked in vain.
#[derive(Debug, Error)]
pub(crate) enum AskError {
    #[error("use the address `{0}`")]
    Address(String),
    #[error("get `{page}`")]
    Request {
        page: &'static str,
        #[source]
        source: hyper_util::client::legacy::Error,
    },
    #[error("get `{0}` within {PATIENCE:?}")]
    Timeout(&'static str),
    #[error("get `{page}`: the worker answered {status}")]
    Refused { page: &'static str, status: StatusCode },
    #[error("read `{page}`")]
    Body {
        page: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("understand `{page}`")]
    Senseless {
        page: &'static str,
        #[source]
        source: EventSourcesError,
    },
}

/// Asks workers. Keeps no connections: it rarely asks one twice.
#[derive(Debug)]
pub(crate) struct Asker {
    client: Client<HttpConnector, Empty<Bytes>>,
}

type Reader = fn(&[u8], &str) -> Result<Vec<EventSource>, EventSourcesError>;

/// The pages that tell, and how they are read, in the order they are asked for.
const PAGES: [(&str, Reader); 2] = [
    ("/kv_event_sources", vllm_event_sources),
    ("/server_info", sglang_event_sources),
];

impl Asker {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(PATIENCE));
        let mut client = Client::builder(TokioExecutor::new());
        Self {
            client: client.pool_max_idle_per_host(0).build(connector),
        }
    }

    /// Asks the worker at `url`, `http://host:port`. An engine has one of the pages; the first that tells anything counts.
    pub(crate) async fn ask(&self, url: &str) -> Answer {
        let host = host_of(url);
        let mut answer = Answer::Absent;
        for (page, read) in PAGES {
            match self.fetch(url, page).await {
                Ok(Some(Page { body, from })) => match read(&body, host) {
                    Ok(sources) if sources.is_empty() => answer = Answer::Sources(sources),
                    Ok(sources) => return Answer::Sources(at_own_host(sources, from, host)),
                    Err(source) => answer = Answer::Failed(AskError::Senseless { page, source }),
                },
                Ok(None) => {}
                Err(error) => return Answer::Failed(error),
            }
        }
        answer
    }

    /// A page of the server at `url`, if it has one of that name.
    pub(super) async fn get(&self, url: &str, page: &'static str) -> Result<Option<Bytes>, AskError> {
        let page = self.fetch(url, page).await?;
        Ok(page.map(|page| page.body))
    }

    /// The same with where it came from.
    async fn fetch(&self, url: &str, page: &'static str) -> Result<Option<Page>, AskError> {
        let address = format!("{url}{page}");
        let uri: Uri = address.parse().map_err(|_| AskError::Address(address))?;
        let asked = async {
            let answer = self.client.get(uri).await;
            let answer = answer.map_err(|source| AskError::Request { page, source })?;
            match answer.status() {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
                    return Ok(None);
                }
                status => return Err(AskError::Refused { page, status }),
            }
            let connection = answer.extensions().get::<HttpInfo>();
            let from = connection.map(|connection| connection.remote_addr().ip());
            let body = Limited::new(answer.into_body(), LONGEST_PAGE).collect().await;
            let body = body.map_err(|source| AskError::Body { page, source })?.to_bytes();
            Ok(Some(Page { body, from }))
        };
        timeout(PATIENCE, asked)
            .await
            .unwrap_or(Err(AskError::Timeout(page)))
    }
}

/// A page, and the address that it came from.
struct Page {
    body: Bytes,
    from: Option<IpAddr>,
}

/// A source at the address that was asked is at the worker's own host, whatever name that has.
fn at_own_host(sources: Vec<EventSource>, from: Option<IpAddr>, host: &str) -> Vec<EventSource> {
    let Some(from) = from else { return sources };
    let own = |source| trust::at_own_host(source, from, host);
    sources.into_iter().map(own).collect()
}

/// The host of `http://host:port`, IPv6 in brackets.
pub(super) fn host_of(url: &str) -> &str {
    let authority = url.trim_start_matches("http://");
    authority.rsplit_once(':').map_or(authority, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_worker_is_what_stands_before_its_port() {
        assert_eq!(host_of("http://gpu-1:8000"), "gpu-1");
        assert_eq!(host_of("http://[::1]:8000"), "[::1]");
    }
}
