//! Listener that can be rebound to another address while the server accepts connections.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::{info, warn};

/// Pause after a failed accept, for example for lack of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Most connections that are taken over from the backlog of a replaced listener.
const MOST_LEFT: usize = 1_024;

/// Rebindable listener: it can be replaced while the server waits for a connection.
#[derive(Debug)]
pub struct RebindableListener {
    listener: TcpListener,
    /// Connections from the backlog of a replaced listener.
    left: VecDeque<TcpStream>,
    next: mpsc::Receiver<TcpListener>,
}

/// Handle that replaces a listener. Accepted connections are kept.
#[derive(Debug, Clone)]
pub struct ListenerHandle {
    next: mpsc::Sender<TcpListener>,
    runtime: Handle,
}

impl RebindableListener {
    /// Creates a listener that can be rebound.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn new(listener: TcpListener) -> (Self, ListenerHandle) {
        let (sender, next) = mpsc::channel(1);
        let handle = ListenerHandle {
            next: sender,
            runtime: Handle::current(),
        };
        let left = VecDeque::new();
        (Self { listener, left, next }, handle)
    }

    /// Accepts the next connection. Cancel safe.
    pub(super) async fn next(&mut self) -> TcpStream {
        loop {
            if let Some(stream) = self.left.pop_front() {
                return stream;
            }
            tokio::select! {
                Some(next) = self.next.recv() => self.replace(next),
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => return stream,
                    Err(error) => {
                        warn!(error = &error as &dyn std::error::Error, "failed to accept a connection");
                        tokio::time::sleep(ACCEPT_AGAIN).await;
                    }
                },
            }
        }
    }

    fn replace(&mut self, next: TcpListener) {
        let address = |listener: &TcpListener| listener.local_addr().ok();
        let text = |address: Option<SocketAddr>| address.map(|address| address.to_string());
        let (was, is) = (text(address(&self.listener)), text(address(&next)));
        let before = std::mem::replace(&mut self.listener, next);
        self.left.extend(backlog(before));
        info!(was, is, "listening on a new address");
    }
}

/// Closes a listener. Returns the connections in its backlog, which the system would reset with it.
fn backlog(listener: TcpListener) -> Vec<TcpStream> {
    // The runtime may not have noticed the newest ones.
    let Ok(listener) = listener.into_std() else {
        return Vec::new();
    };
    let accept = || {
        let (stream, _) = listener.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        TcpStream::from_std(stream).ok()
    };
    std::iter::from_fn(accept).take(MOST_LEFT).collect()
}

impl ListenerHandle {
    /// Listens on an address.
    ///
    /// # Errors
    /// The error of the system call.
    ///
    /// # Panics
    /// On a thread of the runtime.
    pub fn bind(&self, address: SocketAddr) -> io::Result<TcpListener> {
        self.runtime.block_on(TcpListener::bind(address))
    }

    /// Replaces the current listener. None is lost while the rebindable listener exists.
    ///
    /// # Panics
    /// On a thread of the runtime.
    pub fn replace(&self, listener: TcpListener) {
        // A dropped one needs no listener.
        let _ = self.next.blocking_send(listener);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_in_the_backlog_of_a_replaced_listener_are_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mut listener, handle) = RebindableListener::new(listener);
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        let next = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let moved = next.local_addr().unwrap();
        listener.replace(next);
        clients.push(TcpStream::connect(moved).await.unwrap());
        for client in clients {
            let accepted = listener.next().await;
            assert_eq!(accepted.peer_addr().unwrap(), client.local_addr().unwrap());
        }
        TcpStream::connect(address)
            .await
            .expect_err("the old listener is closed");
        drop(handle);
    }
}
