//! Views of the request path for the policy store and the KV plane.

use std::sync::Arc;

use kv_plane::WorkerLiveness;
use policy_store::{FleetView, WorkerNames};
use proxy::{LiveFeeds, SnapshotCell};
use routing::WorkerId;

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

/// Workers whose feeds are live, for the request path.
#[derive(Debug)]
pub(crate) struct RequestPathLiveness(pub(crate) Arc<LiveFeeds>);

impl WorkerLiveness for RequestPathLiveness {
    fn set_live(&self, worker: WorkerId, live: bool) {
        self.0.set(worker, live);
    }

    fn is_live(&self, worker: WorkerId) -> bool {
        self.0.is_live(worker)
    }
}
