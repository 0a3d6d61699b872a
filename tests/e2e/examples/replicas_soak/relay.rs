//! Relay between routers and the NATS server, which can delay all bytes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// Chunks that wait in one direction of a connection.
const MOST: usize = 4_096;

/// Relay that delays as it is set.
pub(crate) struct Relay {
    port: u16,
    delay_ms: Arc<AtomicU64>,
}

impl Relay {
    /// Starts a relay to this address.
    pub(crate) async fn start(to: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let relay = Self {
            port: listener.local_addr()?.port(),
            delay_ms: Arc::default(),
        };
        let delay = Arc::clone(&relay.delay_ms);
        let tasks = TaskTracker::new();
        let connections = tasks.clone();
        tasks.spawn(async move {
            while let Ok((router, _)) = listener.accept().await {
                let delay = Arc::clone(&delay);
                connections.spawn(async move {
                    // Without a server, the router's connection ends as with a server that is away.
                    if let Ok(server) = TcpStream::connect(to).await {
                        pass(router, server, &delay).await;
                    }
                });
            }
        });
        Ok(relay)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sets the delay of what comes from now on.
    pub(crate) fn delay(&self, delay: Duration) {
        let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.delay_ms.store(millis, Ordering::Relaxed);
    }
}

/// Passes bytes on in both directions until one ends.
async fn pass(router: TcpStream, server: TcpStream, delay: &Arc<AtomicU64>) {
    let ((from_router, to_router), (from_server, to_server)) = (router.into_split(), server.into_split());
    tokio::select! {
        () = one_way(from_router, to_server, delay) => {}
        () = one_way(from_server, to_router, delay) => {}
    }
}

async fn one_way(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: &Arc<AtomicU64>) {
    let (sender, mut chunks) = mpsc::channel::<(Instant, Vec<u8>)>(MOST);
    let read = async move {
        let mut buffer = vec![0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let at = Instant::now() + Duration::from_millis(delay.load(Ordering::Relaxed));
            if sender.send((at, buffer[..count].to_vec())).await.is_err() {
                break;
            }
        }
    };
    let write = async move {
        let mut latest = Instant::now();
        while let Some((at, bytes)) = chunks.recv().await {
            // A shorter delay must not let later bytes pass earlier ones.
            latest = latest.max(at);
            tokio::time::sleep_until(latest).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };
    // Bytes that were read before the end are still passed on: a router that ends sends a goodbye just before.
    tokio::join!(read, write);
}
