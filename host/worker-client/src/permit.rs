//! Permit to use one connection of a worker.

use tokio::sync::OwnedSemaphorePermit;

/// Permit to use one connection. Empty if connections are unlimited, and for the router's own requests.
pub(crate) type ConnectionPermit = Option<OwnedSemaphorePermit>;
