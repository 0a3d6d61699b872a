//! Serving parts of a router, which a reload changes.

use std::sync::Arc;

use admin_pages::AdminKey;
use decision_log::Recorder;
use kv_plane::Discovery;
use local_files::ConfigSource;
use logging::LogFilter;
use proxy::{ProxyMetrics, SnapshotCell};
use trace_export::TraceExporter;
use worker_sources::WorkerSources;

use super::{Planner, Steps};
use crate::config_hash::ConfigHash;
use crate::indexer::IndexerHandle;
use crate::listeners::ListenerHandles;

/// Serving parts: a plan reads them, a commit changes them.
pub(crate) struct Live {
    pub(crate) cell: Arc<SnapshotCell>,
    pub(crate) metrics: ProxyMetrics,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) exporter: Arc<TraceExporter>,
    pub(crate) discovery: Arc<Discovery>,
    /// Sources of workers.
    pub(crate) sources: Arc<WorkerSources>,
    /// Key of the admin pages.
    pub(crate) admin_key: AdminKey,
    /// Key and hosts of the indexer, if it is served.
    pub(crate) indexer: Option<IndexerHandle>,
    /// Handles that move the sockets.
    pub(crate) listeners: ListenerHandles,
    pub(crate) log: Option<LogFilter>,
    pub(crate) config_hash: ConfigHash,
}

impl Live {
    /// Returns the inputs of a plan.
    pub(super) fn planner<'a>(
        &'a self,
        steps: &'a Steps,
        source: &'a ConfigSource,
        max_connections: u32,
    ) -> Planner<'a> {
        Planner {
            steps,
            source,
            metrics: &self.metrics,
            recorder: &self.recorder,
            exporter: &self.exporter,
            discovery: &self.discovery,
            sources: &self.sources,
            max_connections,
        }
    }
}
