//! The collector: its client, path, headers and resource.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method};
use request_traces::otlp::{ExportResponse, KeyValue, Message, Resource};
use thiserror::Error;
use worker_client::tls::{TlsError, WorkerTls, WorkerTlsParts};
use worker_client::{Authorization, ConnectionsSpec, UrlError, WorkerClient, WorkerClientError};

use crate::retry::{Reply, judge, retry_after};

/// Path of OTLP/HTTP below an endpoint.
const TRACES: &str = "/v1/traces";
/// Limit of one post, from connecting to the last byte of the response.
const POST_LIMIT: Duration = Duration::from_secs(10);
/// Largest response that is read, in bytes.
const MAX_RESPONSE: usize = 64 << 10;

/// Collector that traces are sent to.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectorSpec {
    /// URL: `http://host:port`, with or without a path. `/v1/traces` is added where the path does not end in it.
    pub endpoint: Box<str>,
    /// Headers of every request, such as a key.
    pub headers: HeaderMap,
    /// Set if requests are compressed with gzip.
    pub gzip: bool,
    /// Attributes of the resource, besides those that the router sets.
    pub resource: Vec<(Box<str>, Box<str>)>,
}

/// Error of a collector that cannot be used.
#[derive(Debug, Error)]
pub enum CollectorError {
    /// The URL is malformed.
    #[error("use the endpoint of `[traces]`")]
    Url(#[source] UrlError),
    /// The system's trusted authorities are not available.
    #[error("prepare TLS for the endpoint of `[traces]`")]
    Tls(#[source] TlsError),
}

/// Client of the collector.
#[derive(Debug)]
pub(crate) struct Collector {
    client: WorkerClient,
    path: Box<str>,
    pub(crate) spec: CollectorSpec,
    pub(crate) resource: Resource,
}

impl Collector {
    /// Makes the client. Nothing is sent.
    ///
    /// # Errors
    /// [`CollectorError`].
    pub(crate) fn new(spec: CollectorSpec, instance: &str) -> Result<Self, CollectorError> {
        let (base, path) = split(&spec.endpoint);
        let tls = match base.starts_with("https://") {
            true => Some(
                WorkerTls::new(WorkerTlsParts::default())
                    .map_err(CollectorError::Tls)?
                    .into(),
            ),
            false => None,
        };
        let connections = ConnectionsSpec {
            idle: 1,
            tls,
            ..ConnectionsSpec::default()
        };
        let client = WorkerClient::new(base, &connections, Authorization::Pass, POST_LIMIT)
            .map_err(CollectorError::Url)?
            .with_max_response(MAX_RESPONSE);
        let path = if path.ends_with(TRACES) {
            path.to_owned()
        } else {
            format!("{}{TRACES}", path.trim_end_matches('/'))
        };
        Ok(Self {
            client,
            path: path.into(),
            resource: resource(&spec, instance),
            spec,
        })
    }

    /// Posts an encoded request.
    ///
    /// # Errors
    /// [`WorkerClientError`] without a complete response.
    pub(crate) async fn post(&self, body: Bytes) -> Result<Reply, WorkerClientError> {
        let mut headers = self.spec.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        if self.spec.gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let reply = self.client.send(Method::POST, &self.path, headers, body).await?;
        Ok(match judge(reply.status) {
            Reply::Accepted(_) => Reply::Accepted(rejected_part(&reply.body)),
            Reply::Retry(_) => Reply::Retry(retry_after(reply.headers.get(RETRY_AFTER))),
            refused @ Reply::Refused(_) => refused,
        })
    }
}

/// Returns base and path of an endpoint.
fn split(endpoint: &str) -> (&str, &str) {
    let host = endpoint.find("://").map_or(0, |at| at + 3);
    let path = endpoint[host..].find('/').map_or(endpoint.len(), |at| host + at);
    endpoint.split_at(path)
}

/// Returns the reason for which the collector rejected a part of the spans.
fn rejected_part(body: &[u8]) -> Option<String> {
    let partial = ExportResponse::decode(body).ok()?.partial_success?;
    (partial.rejected_spans > 0)
        .then(|| format!("{} spans: {}", partial.rejected_spans, partial.error_message))
}

/// Returns the resource. Configured attributes replace the router's own.
fn resource(spec: &CollectorSpec, instance: &str) -> Resource {
    let own = [
        ("service.name", "conductor"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", instance),
    ];
    let is_configured = |key: &str| spec.resource.iter().any(|(name, _)| &**name == key);
    let own = own.into_iter().filter(|(key, _)| !is_configured(key));
    let configured = spec.resource.iter().map(|(key, value)| (&**key, &**value));
    Resource {
        attributes: own
            .chain(configured)
            .map(|(key, value)| KeyValue::new(key, value))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(endpoint: &str) -> CollectorSpec {
        CollectorSpec {
            endpoint: endpoint.into(),
            headers: HeaderMap::new(),
            gzip: true,
            resource: vec![
                ("service.name".into(), "edge".into()),
                ("zone".into(), "a".into()),
            ],
        }
    }

    #[test]
    fn the_path_of_otlp_is_added_where_it_is_missing() {
        let path = |endpoint: &str| Collector::new(spec(endpoint), "i").unwrap().path;
        assert_eq!(&*path("http://a:4318"), "/v1/traces");
        assert_eq!(&*path("http://a:4318/"), "/v1/traces");
        assert_eq!(&*path("http://a/otlp/"), "/otlp/v1/traces");
        assert_eq!(&*path("http://a/x/v1/traces"), "/x/v1/traces");
    }

    #[test]
    fn an_endpoint_that_is_no_url_is_refused() {
        assert!(Collector::new(spec("a:4318"), "i").is_err());
    }

    #[test]
    fn configured_attributes_replace_the_routers_own() {
        let resource = resource(&spec("http://a"), "i");
        let keys: Vec<_> = resource
            .attributes
            .iter()
            .map(|attribute| &*attribute.key)
            .collect();
        assert_eq!(
            keys,
            ["service.version", "service.instance.id", "service.name", "zone"]
        );
    }
}
