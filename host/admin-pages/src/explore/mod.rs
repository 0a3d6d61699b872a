//! Admin pages that explore what the router has: the prefix index, prompts in it, recorded decisions, and uploaded
//! policies. They are on the operators' listener only.

mod index;
mod lookup;
mod replay;
mod simulations;
mod upload;

use std::sync::Arc;

use axum::Router;
use decision_log::Recorder;
use kv_plane::IndexReporter;
use proxy::{Proxy, SnapshotCell};
use tokio::sync::Semaphore;

pub(crate) use self::simulations::SimulationPages;
pub(crate) use self::upload::UploadPage;
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
    lookups: Arc<Semaphore>,
    replays: Arc<Semaphore>,
}

impl Default for ExploreTurns {
    fn default() -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            replays: Arc::new(Semaphore::new(REPLAYS)),
        }
    }
}

impl ExplorePages {
    pub(crate) fn pages(self) -> Router {
        index::pages()
            .merge(lookup::pages())
            .merge(replay::pages())
            .with_state(self)
    }
}
