//! View of the serving fleet for the memory of policies.

use std::sync::Arc;

use policy_store::{FleetView, WorkerNames};
use proxy::SnapshotCell;

/// Fleet of the snapshot that serves at the time of each call.
#[derive(Debug)]
pub(crate) struct LiveFleet(pub(crate) Arc<SnapshotCell>);

impl FleetView for LiveFleet {
    fn worker_names(&self) -> WorkerNames {
        self.0.load().worker_names()
    }

    fn now_us(&self) -> u64 {
        self.0.load().now_us()
    }
}
