//! An address that refuses connections.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// Returns an address without a listener. A socket keeps the port until the process ends, so that no other test listens
/// there.
///
/// # Errors
/// The system's error without a port.
pub fn refused_address() -> io::Result<SocketAddr> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    Box::leak(Box::new(socket)).local_addr()
}
