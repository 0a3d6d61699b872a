//! Sockets, TCP or Unix, under one type.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as BlockingUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::address::PublisherAddress;

/// Timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(2);
/// Timeout of a name lookup.
const LOOK_UP: Duration = Duration::from_secs(10);
/// Concurrent lookups; the system's resolver blocks a thread for each.
pub(super) const LOOK_UPS: usize = 4;
/// Bytes per read.
const READ: usize = 32 << 10;

/// One connection.
#[derive(Debug)]
pub(super) enum PeerStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl PeerStream {
    /// Connects to the first of a host's addresses that answers.
    pub(super) async fn connect(address: &PublisherAddress, resolver: &NameResolver) -> io::Result<Self> {
        match address {
            PublisherAddress::Tcp { host, port } => {
                let addresses = resolver.look_up(host, *port).await?;
                let connecting = TcpStream::connect(&addresses[..]);
                let stream = timeout(CONNECT, connecting).await??;
                set_up(&stream)?;
                Ok(Self::Tcp(stream))
            }
            PublisherAddress::Unix(path) => {
                timeout(CONNECT, UnixStream::connect(path)).await?.map(Self::Unix)
            }
        }
    }

    /// Waits until data is readable.
    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
        }
    }

    /// Reads available data up to a bound; empty at the end. Idle connections hold no buffer.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut chunk = Vec::with_capacity(READ);
        match self {
            Self::Tcp(stream) => stream.try_read_buf(&mut chunk)?,
            Self::Unix(stream) => stream.try_read_buf(&mut chunk)?,
        };
        Ok(chunk)
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes).await,
            Self::Unix(stream) => stream.write_all(bytes).await,
        }
    }
}

/// Name resolver with a concurrency limit: unanswered lookups occupy no more threads or queue than that.
#[derive(Debug, Clone)]
pub(super) struct NameResolver(Arc<Semaphore>);

impl NameResolver {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(LOOK_UPS)))
    }

    async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![(address, port).into()]);
        }
        let looked_up = async {
            // Never closed.
            let permit = Arc::clone(&self.0).acquire_owned().await;
            let host = host.to_owned();
            let look_up = move || {
                let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
                drop(permit);
                found
            };
            tokio::task::spawn_blocking(look_up)
                .await
                .map_err(io::Error::other)?
        };
        timeout(LOOK_UP, looked_up).await?
    }
}

/// Sets socket options. Keepalive lets the kernel detect a dead peer within a minute.
fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10))
        .with_retries(3);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// A bound address that publishers connect to.
#[derive(Debug)]
pub(super) enum PublisherListener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        _path: BoundPath,
    },
}

/// Path of a bound socket, removed with it.
#[derive(Debug)]
pub(super) struct BoundPath(PathBuf);

impl Drop for BoundPath {
    fn drop(&mut self) {
        // A name in the abstract namespace is not a file, and ends by itself.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl PublisherListener {
    /// Binds an address. Must be called within a runtime.
    pub(super) fn bind(address: &PublisherAddress) -> io::Result<Self> {
        match address {
            PublisherAddress::Tcp { host, port } => {
                let listener = std::net::TcpListener::bind(&resolve(host, *port)?[..])?;
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener).map(Self::Tcp)
            }
            PublisherAddress::Unix(path) => {
                let listener = match UnixListener::bind(path) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_behind(path) => {
                        std::fs::remove_file(path)?;
                        UnixListener::bind(path)
                    }
                    bound => bound,
                };
                Ok(Self::Unix {
                    listener: listener?,
                    _path: BoundPath(path.clone()),
                })
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<PeerStream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                set_up(&stream)?;
                Ok(PeerStream::Tcp(stream))
            }
            Self::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                Ok(PeerStream::Unix(stream))
            }
        }
    }
}

/// Resolves a host. `*` is every interface, over IPv6 and IPv4 if the system has both.
fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if host == "*" {
        return Ok(vec![
            (Ipv6Addr::UNSPECIFIED, port).into(),
            (Ipv4Addr::UNSPECIFIED, port).into(),
        ]);
    }
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Returns `true` if a path is the socket of an ended process.
fn is_left_behind(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused = || {
        let connected = BlockingUnixStream::connect(path);
        connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    is_socket && refused()
}
