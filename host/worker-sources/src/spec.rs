//! Specification of a source: its place, its limits, and the properties of its workers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use worker_client::Authorization;
use worker_discovery::WorkerDefaults;

/// Source of workers.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceSpec {
    /// Unique name.
    pub name: String,
    /// Pool of its workers.
    pub pool: String,
    /// Place of its answers.
    pub kind: SourceKind,
    /// Pause between two queries; of a watch, before an answer is queried again.
    pub every: Duration,
    /// Time limit of a query.
    pub timeout: Duration,
    /// Answers in a row that must miss a worker while half or more are missing.
    pub confirm: u32,
    /// Most bytes of an answer.
    pub max_bytes: usize,
    /// Properties of its workers, and their most.
    pub defaults: WorkerDefaults,
}

/// Place of the answers.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceKind {
    /// A and AAAA records of a name.
    Dns {
        /// The name.
        name: String,
        /// Port of the workers.
        port: u16,
        /// Server to query.
        server: DnsServer,
    },
    /// SRV records of a name.
    Srv {
        /// The name, such as `_vllm._tcp.example.org`.
        name: String,
        /// Server to query.
        server: DnsServer,
    },
    /// Prometheus' `http_sd`.
    HttpSd {
        /// The server.
        server: ServerSource,
        /// Path and query.
        path: String,
    },
    /// A file in Prometheus' `file_sd` shape.
    FileSd(PathBuf),
    /// Objects of Kubernetes.
    Kubernetes(KubeSource),
}

/// Server of DNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsServer {
    /// Servers of the system, with its search list and its hosts file.
    System,
    /// This server alone.
    At(SocketAddr),
}

/// HTTP server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSource {
    /// `http://host:port` or `https://host:port`.
    pub url: String,
    /// Authorization of its requests.
    pub bearer: Bearer,
    /// File of the authorities that sign its certificate; `None` for the system's. It is read again when it changes.
    pub ca: Option<PathBuf>,
}

/// Authorization by a bearer token.
#[derive(Debug, Clone, PartialEq)]
pub enum Bearer {
    /// None.
    None,
    /// A known token.
    Known(Authorization),
    /// Token in this file, which is read for each request: Kubernetes rotates it.
    File(PathBuf),
}

/// Objects of a namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct KubeSource {
    /// The API server.
    pub server: ServerSource,
    /// The namespace.
    pub namespace: String,
    /// The objects.
    pub objects: KubeObjects,
    /// Name or number of the workers' port; `None` for the only one.
    pub port: Option<String>,
}

/// Kind of the objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeObjects {
    /// EndpointSlices of this Service.
    Service(String),
    /// Pods with these labels.
    Pods(String),
}

impl SourceKind {
    /// Returns its name in the configuration.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Dns { .. } => "dns",
            Self::Srv { .. } => "srv",
            Self::HttpSd { .. } => "http-sd",
            Self::FileSd(_) => "file-sd",
            Self::Kubernetes(_) => "kubernetes",
        }
    }

    /// Returns `true` if both are queried at the same place, whatever their tokens and authorities.
    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        self.without_access() == other.without_access()
    }

    fn without_access(&self) -> Self {
        let mut place = self.clone();
        if let Self::HttpSd { server, .. } | Self::Kubernetes(KubeSource { server, .. }) = &mut place {
            server.bearer = Bearer::None;
            server.ca = None;
        }
        place
    }

    /// Returns its place, for pages and logs. It has no key.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::Dns { name, port, .. } => format!("{name}:{port}"),
            Self::Srv { name, .. } => name.clone(),
            // A query may have a key.
            Self::HttpSd { server, path } => {
                format!("{}{}", server.url, path.split('?').next().unwrap_or_default())
            }
            Self::FileSd(path) => path.display().to_string(),
            Self::Kubernetes(source) => {
                let objects = match &source.objects {
                    KubeObjects::Service(name) => format!("services/{name}"),
                    KubeObjects::Pods(selector) => format!("pods?{selector}"),
                };
                let port = source
                    .port
                    .as_ref()
                    .map_or_else(String::new, |port| format!(":{port}"));
                format!("{}/{objects}{port}", source.namespace)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dns(server: DnsServer) -> SourceKind {
        let name = "engines".to_owned();
        SourceKind::Dns {
            name,
            port: 1,
            server,
        }
    }

    fn kubernetes(url: &str, bearer: Bearer) -> SourceKind {
        SourceKind::Kubernetes(KubeSource {
            server: ServerSource {
                url: url.to_owned(),
                bearer,
                ca: Some("ca.pem".into()),
            },
            namespace: "default".to_owned(),
            objects: KubeObjects::Service("engines".to_owned()),
            port: None,
        })
    }

    #[test]
    fn another_server_is_another_place_and_another_token_is_not() {
        let at = dns(DnsServer::At(([127, 0, 0, 1], 53).into()));
        assert!(at.is_same_place(&at.clone()) && !at.is_same_place(&dns(DnsServer::System)));
        let one = kubernetes("https://one", Bearer::None);
        assert!(one.is_same_place(&kubernetes("https://one", Bearer::File("token".into()))));
        assert!(!one.is_same_place(&kubernetes("https://two", Bearer::None)));
    }
}
