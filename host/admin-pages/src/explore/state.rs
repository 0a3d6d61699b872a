//! State of the pages: their sources, and limits of work at a time.

use std::sync::Arc;

use decision_log::Recorder;
use kv_plane::IndexReporter;
use proxy::{Proxy, SnapshotCell};
use tokio::sync::Semaphore;

use crate::access::AdminKey;
use crate::control::Status;

/// Lookups at a time.
const LOOKUPS: usize = 4;
/// Replays at a time.
const REPLAYS: usize = 2;

/// The pages, with their sources.
#[derive(Debug, Clone)]
pub(crate) struct ExplorePages {
    pub(crate) key: AdminKey,
    pub(crate) cell: Arc<SnapshotCell>,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) index: Arc<IndexReporter>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) status: Status,
    pub(crate) turns: ExploreTurns,
}

/// Limits of tasks at a time.
#[derive(Debug, Clone)]
pub(crate) struct ExploreTurns {
    pub(super) lookups: Arc<Semaphore>,
    pub(super) replays: Arc<Semaphore>,
}

impl Default for ExploreTurns {
    fn default() -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            replays: Arc::new(Semaphore::new(REPLAYS)),
        }
    }
}
