//! Sources of workers: DNS names, HTTP service discovery, files, and Kubernetes' API server.
//!
//! Each source is a task on a small runtime of its own, so that a slow one delays neither requests nor reloads.
//! [`WorkerSources`] starts and ends them by the configuration, and has the accepted workers of each. A source
//! that fails keeps its last answer. See `host/adr/0035-worker-discovery.md`.

mod client;
mod dns;
mod error;
mod file;
mod http_sd;
mod kubernetes;
mod metrics;
mod poll;
mod report;
mod sources;
mod spec;
mod state;
mod tasks;

pub use error::SourceError;
pub use poll::query_once;
pub use report::{BadEntries, SourceReport, SourceStatus};
pub use sources::{SourcesError, SourcesPlan, WorkerSources};
pub use spec::{Bearer, DnsServer, KubeObjects, KubeSource, ServerSource, SourceKind, SourceSpec};
