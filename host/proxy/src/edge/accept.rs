//! Listener that can be rebound to another address while the server accepts connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::{info, warn};

/// Pause after a failed accept, for example for lack of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Rebindable listener: it can be replaced while the server waits for a connection.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    next: mpsc::Receiver<TcpListener>,
}

/// Handle that replaces a door's listener. Accepted connections are kept.
#[derive(Debug, Clone)]
pub struct DoorKey {
    next: mpsc::Sender<TcpListener>,
    runtime: Handle,
}

impl Door {
    /// Creates a door with its first listener.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn new(listener: TcpListener) -> (Self, DoorKey) {
        let (sender, next) = mpsc::channel(1);
        let key = DoorKey {
            next: sender,
            runtime: Handle::current(),
        };
        (Self { listener, next }, key)
    }

    /// Accepts the next connection. Cancel safe.
    pub(super) async fn next(&mut self) -> TcpStream {
        loop {
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
        self.listener = next;
        info!(was, is, "listening elsewhere");
    }
}

impl DoorKey {
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

    /// Replaces the current listener. None is lost while the door exists.
    ///
    /// # Panics
    /// On a thread of the runtime.
    pub fn replace(&self, listener: TcpListener) {
        // A dropped door needs no listener.
        let _ = self.next.blocking_send(listener);
    }
}
