//! The sockets, bound before anything is served.

use std::net::SocketAddr;

use conductor_config::ServerConfig;
use tokio::net::TcpListener;

use super::BuildError;

/// The sockets that clients and administrators connect to.
pub(super) struct Sockets {
    pub(super) listener: TcpListener,
    pub(super) admin: Option<TcpListener>,
    /// As they are, where port 0 was asked for.
    pub(super) addresses: (SocketAddr, Option<SocketAddr>),
}

impl Sockets {
    pub(super) async fn bind(server: &ServerConfig) -> Result<Self, BuildError> {
        let listener = listen(server.listen, "server.listen").await?;
        let admin = match server.admin_listen {
            Some(address) => Some(listen(address, "server.admin-listen").await?),
            None => None,
        };
        let addresses = (
            listener.local_addr().unwrap_or(server.listen),
            admin.as_ref().and_then(|admin| admin.local_addr().ok()),
        );
        Ok(Self {
            listener,
            admin,
            addresses,
        })
    }
}

pub(crate) async fn listen(address: SocketAddr, key: &'static str) -> Result<TcpListener, BuildError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| BuildError::Listen { address, key, source })
}
