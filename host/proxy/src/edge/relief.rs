//! Memory relief of the server: caches of the active snapshot, idle connections, and bodies in arrival.

use std::sync::Arc;

use crate::edge::connections::ConnectionLimiter;
use crate::limits::memory::{MemoryRelief, MemoryStage};
use crate::proxy::Proxy;

/// Holders of memory of a server.
#[derive(Debug)]
pub(super) struct ServerRelief {
    pub(super) proxy: Arc<Proxy>,
    /// Limiter of the clients' connections.
    pub(super) limiter: Arc<ConnectionLimiter>,
}

impl MemoryRelief for ServerRelief {
    fn shrink_caches(&self, stage: MemoryStage) {
        self.proxy.snapshots.load().shrink_caches(stage);
    }

    fn end_idle_connections(&self) {
        self.limiter.end_idle();
    }

    fn end_largest_body(&self) {
        self.proxy.snapshots.edge().bodies.end_largest();
    }
}
