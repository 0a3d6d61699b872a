//! First sockets of a router.

use crate::indexer::Indexing;
use crate::listeners::{ListenError, ServerListeners};
use crate::reload::{ActiveConfig, Live};

use super::caches::Caches;

/// Bound sockets for clients, operators and clients of the index. They accept no connection yet.
pub(super) struct Sockets {
    pub(super) servers: ServerListeners,
    pub(super) indexer: Option<Indexing>,
}

impl Sockets {
    /// Binds the sockets of the first configuration, and hands their handles to `live`.
    ///
    /// A reload binds sockets as the last step of its plan, through these handles. At start there are none, and the
    /// indexer's socket is bound only here.
    ///
    /// # Errors
    /// [`ListenError`] of the first address that cannot be bound.
    pub(super) async fn bind(
        first: &ActiveConfig,
        caches: &Caches,
        live: &mut Live,
    ) -> Result<Self, ListenError> {
        let (servers, handles) = ServerListeners::bind(&first.config.server).await?;
        let indexer = caches.indexing(first).await?;
        live.listeners = handles;
        live.indexer = indexer.as_ref().map(Indexing::handle);
        Ok(Self { servers, indexer })
    }
}
