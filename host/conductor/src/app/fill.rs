//! Readiness of a started router: after the fill of its index, or after the time for it.

use std::sync::Arc;
use std::time::Duration;

use kv_plane::{Discovery, FillOutcome};
use proxy::Readiness;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::listeners::BoundAddresses;
use crate::tasks;

/// Wait of a started router for the fill of its index.
pub(super) struct StartFill {
    pub(super) discovery: Arc<Discovery>,
    pub(super) readiness: Readiness,
    /// Longest wait.
    pub(super) within: Duration,
    pub(super) addresses: BoundAddresses,
}

impl StartFill {
    /// Marks the router as ready once its index is filled: at once if there is nothing to wait for.
    pub(super) fn begin(self, stop: &CancellationToken) {
        if self.within.is_zero() || self.discovery.unfilled() == 0 {
            return self.finish();
        }
        self.readiness.mark_filling();
        tasks::spawn("index-fill", stop.clone().run_until_cancelled_owned(self.run()));
    }

    async fn run(self) {
        let FillOutcome {
            unfilled,
            incomplete,
            from_routers,
            ..
        } = self.discovery.wait_filled(self.within).await;
        if unfilled > 0 {
            warn!(
                unfilled,
                from_routers,
                within = ?self.within,
                "the event feeds did not fill the prefix index in time: ready without their blocks"
            );
        } else {
            info!(
                incomplete,
                from_routers, "the event feeds filled the prefix index"
            );
        }
        self.finish();
    }

    fn finish(self) {
        self.discovery.end_fill();
        self.readiness.mark_ready();
        let admin = self.addresses.admin.map(|admin| admin.to_string());
        info!(listen = %self.addresses.clients, admin = admin.as_deref().unwrap_or("off"), "ready");
    }
}
