//! Accepting connections, on whichever listener is the present one.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::{info, warn};

/// Pause after an accept that failed for want of file descriptors or the like.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// A listener that may be replaced by another while it is waited for.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    next: mpsc::Receiver<TcpListener>,
}

/// Replaces a door's listener. Connections that were accepted go on.
#[derive(Debug, Clone)]
pub struct DoorKey {
    next: mpsc::Sender<TcpListener>,
    runtime: Handle,
}

impl Door {
    /// A door with its first listener.
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

    /// The next connection. It is cancel safe.
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
        let told = |address: Option<SocketAddr>| address.map(|address| address.to_string());
        let (was, is) = (told(address(&self.listener)), told(address(&next)));
        self.listener = next;
        info!(was, is, "listening elsewhere");
    }
}

impl DoorKey {
    /// Listens on an address.
    ///
    /// # Errors
    /// Whatever the system says.
    ///
    /// # Panics
    /// On a thread of the runtime.
    pub fn bind(&self, address: SocketAddr) -> io::Result<TcpListener> {
        self.runtime.block_on(TcpListener::bind(address))
    }

    /// Puts another listener in place of the one there is; none is lost while the door is still there.
    ///
    /// # Panics
    /// On a thread of the runtime.
    pub fn replace(&self, listener: TcpListener) {
        // A door that is gone needs none.
        let _ = self.next.blocking_send(listener);
    }
}
