//! The sockets, bound before anything is served, and moved when the configuration moves them.

use std::io;
use std::net::SocketAddr;

use conductor_config::ServerConfig;
use proxy::{Door, DoorKey};
use thiserror::Error;
use tokio::net::TcpListener;

/// The sockets that clients and administrators connect to.
pub(super) struct Sockets {
    pub(super) clients: Door,
    pub(super) admin: Option<Door>,
    /// As they are, where port 0 was asked for.
    pub(super) addresses: (SocketAddr, Option<SocketAddr>),
}

/// Moves the sockets.
#[derive(Debug)]
pub(crate) struct Doors {
    clients: DoorKey,
    admin: Option<DoorKey>,
}

/// Sockets that are bound and accept no connection yet. Dropping them closes them.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    clients: Option<TcpListener>,
    admin: Option<TcpListener>,
}

/// An address cannot be listened on.
#[derive(Debug, Error)]
#[error("failed to listen on {address} (`{key}`)")]
pub struct ListenError {
    /// Which.
    pub address: SocketAddr,
    /// The key that names it.
    pub key: &'static str,
    /// Why not.
    #[source]
    pub source: io::Error,
}

const LISTEN: &str = "server.listen";
const ADMIN_LISTEN: &str = "server.admin-listen";

impl Sockets {
    pub(super) async fn bind(server: &ServerConfig) -> Result<(Self, Doors), ListenError> {
        let clients = listen(server.listen, LISTEN).await?;
        let admin = match server.admin_listen {
            Some(address) => Some(listen(address, ADMIN_LISTEN).await?),
            None => None,
        };
        let addresses = (
            clients.local_addr().unwrap_or(server.listen),
            admin.as_ref().and_then(|admin| admin.local_addr().ok()),
        );
        let (clients, clients_key) = Door::new(clients);
        let (admin, admin_key) = admin.map(Door::new).unzip();
        let sockets = Self {
            clients,
            admin,
            addresses,
        };
        let doors = Doors {
            clients: clients_key,
            admin: admin_key,
        };
        Ok((sockets, doors))
    }
}

impl Doors {
    /// Binds the addresses that are others now. Not on a thread of the runtime.
    ///
    /// # Errors
    /// [`ListenError`]; nothing has changed then.
    pub(crate) fn bind(&self, was: &ServerConfig, is: &ServerConfig) -> Result<Bound, ListenError> {
        let bind = |door: &DoorKey, address, key| {
            let bound = door.bind(address);
            bound.map_err(|source| ListenError { address, key, source })
        };
        let mut bound = Bound::default();
        if was.listen != is.listen {
            bound.clients = Some(bind(&self.clients, is.listen, LISTEN)?);
        }
        if let (Some(door), Some(address)) = (&self.admin, is.admin_listen)
            && was.admin_listen != is.admin_listen
        {
            bound.admin = Some(bind(door, address, ADMIN_LISTEN)?);
        }
        Ok(bound)
    }

    /// Takes connections on what was bound, and no more where it was before. Not on a thread of the runtime.
    pub(crate) fn open(&self, bound: Bound) {
        if let Some(listener) = bound.clients {
            self.clients.replace(listener);
        }
        if let (Some(door), Some(listener)) = (&self.admin, bound.admin) {
            door.replace(listener);
        }
    }
}

pub(crate) async fn listen(address: SocketAddr, key: &'static str) -> Result<TcpListener, ListenError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| ListenError { address, key, source })
}
