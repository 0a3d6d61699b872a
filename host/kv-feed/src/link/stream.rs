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

use super::address::Address;

/// An attempt to connect that is not answered is given up after this, and made again.
const CONNECT: Duration = Duration::from_secs(2);
/// The same for a look-up of a name.
const LOOK_UP: Duration = Duration::from_secs(10);
/// Look-ups at a time; the system's resolver blocks a thread for each.
pub(super) const LOOK_UPS: usize = 4;
/// Bytes read at once.
const READ: usize = 32 << 10;

/// One connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects to the first of a host's addresses that answers.
    pub(super) async fn connect(address: &Address, resolver: &Resolver) -> io::Result<Self> {
        match address {
            Address::Tcp { host, port } => {
                let addresses = resolver.look_up(host, *port).await?;
                let connecting = TcpStream::connect(&addresses[..]);
                let stream = timeout(CONNECT, connecting).await??;
                set_up(&stream)?;
                Ok(Self::Tcp(stream))
            }
            Address::Unix(path) => timeout(CONNECT, UnixStream::connect(path)).await?.map(Self::Unix),
        }
    }

    /// Waits until something can be read.
    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
        }
    }

    /// Reads what is there, up to a bound; empty at the end. The buffer is held while it is needed, not by idle connections.
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

/// Looks up names, a few at a time: one that nobody answers for leaves no more threads and no queue behind than that.
#[derive(Debug, Clone)]
pub(super) struct Resolver(Arc<Semaphore>);

impl Resolver {
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

/// A dead peer is noticed by the kernel too, within a minute.
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
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        _path: BoundPath,
    },
}

/// The path of a bound socket, removed with it.
#[derive(Debug)]
pub(super) struct BoundPath(PathBuf);

impl Drop for BoundPath {
    fn drop(&mut self) {
        // A name in the abstract namespace is no file, and ends by itself.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Binds an address. Within a runtime.
    pub(super) fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp { host, port } => {
                let listener = std::net::TcpListener::bind(&resolve(host, *port)?[..])?;
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener).map(Self::Tcp)
            }
            Address::Unix(path) => {
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

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                set_up(&stream)?;
                Ok(Stream::Tcp(stream))
            }
            Self::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                Ok(Stream::Unix(stream))
            }
        }
    }
}

/// `*` is every interface, over IPv6 and IPv4 where the system has both.
fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if host == "*" {
        return Ok(vec![
            (Ipv6Addr::UNSPECIFIED, port).into(),
            (Ipv4Addr::UNSPECIFIED, port).into(),
        ]);
    }
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Whether a path is the socket of a process that has ended.
fn is_left_behind(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused = || {
        let connected = BlockingUnixStream::connect(path);
        connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    is_socket && refused()
}
