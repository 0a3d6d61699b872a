//! Listeners for clients and operators: bound before anything is served, and replaced when their addresses change.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use conductor_config::{Location, Mark, ServerConfig};
use proxy::{ListenerHandle, RebindableListener};
use thiserror::Error;
use tokio::net::TcpListener;

/// Bound listeners of a router that starts. They accept no connection yet.
pub(crate) struct ServerListeners {
    pub(crate) clients: RebindableListener,
    pub(crate) admin: Option<RebindableListener>,
    pub(crate) addresses: BoundAddresses,
}

/// Bound addresses, with the chosen port for port 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BoundAddresses {
    pub(crate) clients: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
}

/// Handles that replace the listeners of a serving router. There are none until the first sockets are bound.
#[derive(Debug, Default)]
pub(crate) struct ListenerHandles {
    clients: Option<ListenerHandle>,
    admin: Option<ListenerHandle>,
    /// Configured address of the open admin listener. It stays while the configuration has none: `off` needs a restart.
    admin_address: Mutex<Option<SocketAddr>>,
}

/// Bound sockets that accept no connection yet. Dropping them closes them.
#[derive(Debug, Default)]
pub(crate) struct BoundListeners {
    clients: Option<TcpListener>,
    admin: Option<(SocketAddr, TcpListener)>,
}

/// Error of listening on an address.
#[derive(Debug, Error)]
#[error("failed to listen on {address} (`{key}`)")]
pub struct ListenError {
    /// Address to listen on.
    pub address: SocketAddr,
    /// Configuration key of the address.
    pub key: &'static str,
    /// Position of the key, if the configuration has it.
    pub at: Option<Location>,
    /// Error of the system.
    #[source]
    pub source: io::Error,
}

impl ListenError {
    fn new(address: SocketAddr, key: &'static str, at: Option<&Mark>, source: io::Error) -> Self {
        Self {
            address,
            key,
            at: at.map(|mark| mark.location),
            source,
        }
    }
}

const LISTEN: &str = "server.listen";
const ADMIN_LISTEN: &str = "server.admin-listen";

impl ServerListeners {
    /// Binds the first sockets.
    ///
    /// # Errors
    /// [`ListenError`] of the first address that cannot be bound.
    pub(crate) async fn bind(server: &ServerConfig) -> Result<(Self, ListenerHandles), ListenError> {
        let clients = listen(server.listen, LISTEN, server.listen_at.as_ref()).await?;
        let admin = match server.admin_listen {
            Some(address) => Some(listen(address, ADMIN_LISTEN, server.admin_listen_at.as_ref()).await?),
            None => None,
        };
        let addresses = BoundAddresses {
            clients: clients.local_addr().unwrap_or(server.listen),
            admin: admin.as_ref().and_then(|admin| admin.local_addr().ok()),
        };
        let (clients, clients_handle) = RebindableListener::new(clients);
        let (admin, admin_handle) = admin.map(RebindableListener::new).unzip();
        let sockets = Self {
            clients,
            admin,
            addresses,
        };
        let listeners = ListenerHandles {
            clients: Some(clients_handle),
            admin: admin_handle,
            admin_address: Mutex::new(server.admin_listen),
        };
        Ok((sockets, listeners))
    }
}

impl ListenerHandles {
    /// Binds the addresses that changed. Must not run on a thread of the runtime.
    ///
    /// # Errors
    /// [`ListenError`]; nothing has changed then.
    pub(crate) fn bind(&self, was: &ServerConfig, is: &ServerConfig) -> Result<BoundListeners, ListenError> {
        let bind = |handle: &ListenerHandle, address, key, at: &Option<Mark>| {
            let bound = handle.bind(address);
            bound.map_err(|source| ListenError::new(address, key, at.as_ref(), source))
        };
        let mut bound = BoundListeners::default();
        if let Some(handle) = &self.clients
            && was.listen != is.listen
        {
            bound.clients = Some(bind(handle, is.listen, LISTEN, &is.listen_at)?);
        }
        if let (Some(handle), Some(address)) = (&self.admin, is.admin_listen)
            && self.admin_address() != is.admin_listen
        {
            bound.admin = Some((address, bind(handle, address, ADMIN_LISTEN, &is.admin_listen_at)?));
        }
        Ok(bound)
    }

    /// Returns the configured address of the open admin listener.
    pub(crate) fn admin_address(&self) -> Option<SocketAddr> {
        *self.admin_address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections on the bound sockets and closes the replaced ones. Must not run on a thread of the runtime.
    pub(crate) fn open(&self, bound: BoundListeners) {
        if let (Some(handle), Some(listener)) = (&self.clients, bound.clients) {
            handle.replace(listener);
        }
        if let (Some(handle), Some((address, listener))) = (&self.admin, bound.admin) {
            *self.admin_address.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
            handle.replace(listener);
        }
    }
}

/// Binds an address, which the configuration names at `key`.
pub(crate) async fn listen(
    address: SocketAddr,
    key: &'static str,
    at: Option<&Mark>,
) -> Result<TcpListener, ListenError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| ListenError::new(address, key, at, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(admin: Option<SocketAddr>) -> ServerConfig {
        ServerConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin_listen: admin,
            ..ServerConfig::default()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_admin_listener_that_is_switched_off_and_on_again_is_not_bound_twice() {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let (on, off) = (server(Some(address)), server(None));
        let (_sockets, handles) = ServerListeners::bind(&on).await.unwrap();
        let tried = tokio::task::spawn_blocking(move || {
            let bound = handles.bind(&on, &off).unwrap();
            handles.open(bound);
            let kept = handles.admin_address();
            let bound = handles.bind(&off, &on).unwrap();
            (kept, bound.admin.is_some())
        });
        assert_eq!(tried.await.unwrap(), (Some(address), false));
    }
}
