//! Errors of a query. Each names the attempted step.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hickory_resolver::net::NetError;
use http::StatusCode;
use http::header::InvalidHeaderValue;
use thiserror::Error;
use worker_client::tls::TlsError;
use worker_client::{SendError, UrlError, WorkerClientError};
use worker_discovery::{AnswerError, KubeStoreError, LineTooLong};

/// Error of a query. The source keeps its last answer.
#[derive(Debug, Error)]
pub enum SourceError {
    /// No answer in time.
    #[error("the query took longer than `timeout`, {0:?}")]
    Timeout(Duration),
    /// The resolver could not be set up.
    #[error("failed to set up the resolver")]
    Resolver(#[source] NetError),
    /// The name could not be resolved.
    #[error("failed to resolve `{name}`")]
    Dns {
        /// The name.
        name: String,
        /// Error of the resolver.
        #[source]
        source: NetError,
    },
    /// The URL cannot be used.
    #[error("failed to use the URL of the server")]
    Url(#[source] UrlError),
    /// The path cannot be used. It is not shown: its query may have a key.
    #[error("failed to use the path of the server's URL")]
    Path,
    /// A file cannot be read.
    #[error("failed to read {what} from the file `{}`", path.display())]
    File {
        /// Content of the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The token has characters that no header can carry.
    #[error("failed to use the token: no header can carry it")]
    Token(#[source] InvalidHeaderValue),
    /// The authorities cannot be used.
    #[error("failed to set up TLS")]
    Tls(#[source] TlsError),
    /// No whole answer.
    #[error("failed to query the server")]
    Query(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No answer to a watch.
    #[error("failed to begin the watch")]
    Watch(#[source] SendError),
    /// An answer with an error status.
    #[error("the server answered with the status {0}")]
    Status(StatusCode),
    /// An answer that cannot be used.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// An answer of the API server that cannot be used.
    #[error(transparent)]
    Objects(#[from] KubeStoreError),
    /// A line of the watch that cannot be used.
    #[error(transparent)]
    Line(#[from] LineTooLong),
    /// A list of the API server that does not end.
    #[error("the list has more than {0} pages")]
    Pages(usize),
    /// The thread that reads files ended.
    #[error("the thread that reads the file panicked")]
    Thread,
}

impl From<WorkerClientError> for SourceError {
    /// Leaves the path out, whose query may have a key.
    fn from(error: WorkerClientError) -> Self {
        match error {
            WorkerClientError::Path(_) => Self::Path,
            WorkerClientError::Forward { source, .. } | WorkerClientError::Body { source, .. } => {
                Self::Query(source)
            }
            WorkerClientError::Timeout { limit, .. } => Self::Timeout(limit),
        }
    }
}
