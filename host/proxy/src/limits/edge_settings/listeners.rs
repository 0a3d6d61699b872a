//! TLS and HTTP/2 settings of the listeners.

use std::sync::Arc;

use super::http2::Http2Limits;
use crate::base::tls::ServerTls;

/// TLS settings of each listener; `None` for plain connections.
#[derive(Debug, Clone, Default)]
pub struct ListenersSpec {
    /// Listener of clients.
    pub clients: Option<Arc<ServerTls>>,
    /// Listener of operators.
    pub admin: Option<Arc<ServerTls>>,
    /// Listener of the index service.
    pub indexer: Option<Arc<ServerTls>>,
    /// HTTP/2 limits of all listeners.
    pub http2: Http2Limits,
}

/// Listener of pages: every listener but that of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagesListener {
    /// Listener of operators.
    Admin,
    /// Listener of the index service.
    Indexer,
}

impl PagesListener {
    /// Returns its name in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Indexer => "indexer",
        }
    }
}

impl ListenersSpec {
    pub(crate) fn of(&self, listener: PagesListener) -> Option<Arc<ServerTls>> {
        match listener {
            PagesListener::Admin => self.admin.clone(),
            PagesListener::Indexer => self.indexer.clone(),
        }
    }

    /// Returns each listener that has TLS, with its name in metrics.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &ServerTls)> {
        let all = [
            ("clients", &self.clients),
            (PagesListener::Admin.as_str(), &self.admin),
            (PagesListener::Indexer.as_str(), &self.indexer),
        ];
        all.into_iter()
            .filter_map(|(name, tls)| Some((name, tls.as_deref()?)))
    }
}
