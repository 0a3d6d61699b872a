//! Request path of a router: the proxy, its readiness and its limits.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use proxy::{Proxy, ProxyParts, Readiness, ServeLimits};
use tracing::info;

use super::caches::Caches;
use crate::compose;
use crate::reload::Reloader;

/// Request path that is not ready yet.
pub(super) struct RequestPath {
    pub(super) proxy: Arc<Proxy>,
    pub(super) readiness: Readiness,
    pub(super) limits: ServeLimits,
}

impl RequestPath {
    /// Makes the request path of the active snapshot. `registry` has the metrics of its page.
    pub(super) fn new(
        reloader: &Reloader,
        caches: &Caches,
        registry: Registry,
        readiness: Readiness,
    ) -> Self {
        let live = &reloader.live;
        let proxy = Proxy::new(ProxyParts {
            snapshots: Arc::clone(&live.cell),
            index: Arc::clone(&caches.plane.index),
            live: Arc::clone(&caches.live),
            metrics: live.metrics.clone(),
            registry: Arc::new(registry),
            readiness: readiness.clone(),
        });
        for pool in live.cell.load().pools_without_tokenizer() {
            info!(
                pool,
                "name a tokenizer in [models.NAME] to save a request to a worker for each prompt"
            );
        }
        Self {
            proxy,
            readiness,
            limits: compose::serve_limits(&reloader.at_start),
        }
    }
}
