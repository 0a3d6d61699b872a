//! From a worker's URL to an open connection: its name is resolved each time, and all its addresses are tried.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use http::uri::{Authority, Scheme, Uri};
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::tls::{self, Stream, WorkerTls};

/// Addresses of one name that are tried; the time is shared out between them.
const MOST_ADDRESSES: usize = 8;

/// A worker's URL is not one that can be connected to.
#[derive(Debug, Error)]
pub enum UrlError {
    /// Not a URL at all.
    #[error("parse worker URL `{url}`")]
    Unreadable {
        /// As configured.
        url: Box<str>,
        /// What is wrong with it.
        #[source]
        source: http::uri::InvalidUri,
    },
    /// A URL, but not of the form `http://host:port`.
    #[error("use worker URL `{url}`: it must have the form `http://host:port` or `https://host:port`")]
    Unsupported {
        /// As configured.
        url: Box<str>,
    },
}

/// A connection could not be opened.
#[derive(Debug, Error)]
pub(crate) enum ConnectError {
    #[error("connect to `{address}`")]
    Io {
        address: Box<str>,
        #[source]
        source: io::Error,
    },
    #[error("connect to `{address}` within {limit:?}")]
    Timeout { address: Box<str>, limit: Duration },
    #[error("begin HTTP with `{address}`")]
    Handshake {
        address: Box<str>,
        #[source]
        source: hyper::Error,
    },
    #[error("begin TLS with `{address}`")]
    Tls {
        address: Box<str>,
        #[source]
        source: io::Error,
    },
    /// It says nothing against the worker.
    #[error("get one of the connections to `{address}` that may be in use within {limit:?}")]
    NoRoom { address: Box<str>, limit: Duration },
}

/// Where a worker is.
#[derive(Debug)]
pub(super) struct Target {
    /// `host:port`.
    pub(super) address: Box<str>,
    /// The `Host` of requests.
    pub(super) host: HeaderValue,
    /// The same with the scheme, as requests of HTTP/2 name it.
    pub(super) origin: (Scheme, Authority),
    /// The host as certificates name it; none: without TLS.
    secure: Option<ServerName<'static>>,
    /// Where the host is an address already.
    fixed: Option<SocketAddr>,
}

impl Target {
    pub(super) fn new(url: &str) -> Result<Self, UrlError> {
        let uri: Uri = url.parse().map_err(|source| UrlError::Unreadable {
            url: url.into(),
            source,
        })?;
        let unsupported = || UrlError::Unsupported { url: url.into() };
        let is_secure = uri.scheme() == Some(&Scheme::HTTPS);
        if !is_secure && uri.scheme() != Some(&Scheme::HTTP) || !matches!(uri.path(), "" | "/") {
            return Err(unsupported());
        }
        let host = uri.host().ok_or_else(unsupported)?;
        let named = uri.authority().ok_or_else(unsupported)?;
        let authority = named.as_str();
        let scheme = if is_secure { Scheme::HTTPS } else { Scheme::HTTP };
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let address = format!("{host}:{port}");
        let secure = is_secure.then(|| tls::server_name(host));
        Ok(Self {
            fixed: address.parse().ok(),
            address: address.into(),
            host: HeaderValue::from_str(authority).map_err(|_| unsupported())?,
            origin: (scheme, named.clone()),
            secure: secure.transpose().map_err(|_| unsupported())?,
        })
    }

    pub(super) fn is_secure(&self) -> bool {
        self.secure.is_some()
    }

    /// Opens a connection within the limit, TLS included. Returns whether it is to speak HTTP/2: where that is offered, behind
    /// TLS as the worker chooses, else in any case.
    pub(super) async fn open(
        &self,
        (tls, offers_http2): (Option<Arc<WorkerTls>>, bool),
        limit: Duration,
    ) -> Result<(Stream, bool), ConnectError> {
        let deadline = Instant::now() + limit;
        let too_late = || ConnectError::Timeout {
            address: self.address.clone(),
            limit,
        };
        let addresses = timeout(limit, self.resolve()).await.map_err(|_| too_late())??;
        let mut failed = too_late();
        for (at, address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let others = u32::try_from(addresses.len() - at).unwrap_or(1);
            match timeout(
                left / others,
                self.open_at(*address, tls.as_deref(), offers_http2),
            )
            .await
            {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failed = error,
                Err(_) => failed = too_late(),
            }
        }
        Err(failed)
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, ConnectError> {
        if let Some(fixed) = self.fixed {
            return Ok(vec![fixed]);
        }
        let found = lookup_host(&*self.address).await;
        let found: Vec<_> = found
            .map_err(|source| self.io(source))?
            .take(MOST_ADDRESSES)
            .collect();
        if found.is_empty() {
            return Err(self.io(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
        }
        Ok(found)
    }

    async fn open_at(
        &self,
        address: SocketAddr,
        tls: Option<&WorkerTls>,
        offers_http2: bool,
    ) -> Result<(Stream, bool), ConnectError> {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|source| self.io(source))?;
        stream.set_nodelay(true).map_err(|source| self.io(source))?;
        let Some(host) = &self.secure else {
            return Ok((Stream::Plain(stream), offers_http2));
        };
        let failed = |source| ConnectError::Tls {
            address: self.address.clone(),
            source,
        };
        let unknown = || io::Error::new(io::ErrorKind::Unsupported, "nothing says whom to trust");
        let tls = tls.ok_or_else(|| failed(unknown()))?;
        tls.connect(host, stream, offers_http2).await.map_err(failed)
    }

    fn io(&self, source: io::Error) -> ConnectError {
        ConnectError::Io {
            address: self.address.clone(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: Option<(&str, &str, bool)>) {
        let target = Target::new(url).ok();
        let parts = target.as_ref().map(|target| {
            let host = target.host.to_str().unwrap();
            (&*target.address, host, target.secure.is_some())
        });
        assert_eq!(parts, expected, "{url}");
    }

    #[test]
    fn a_worker_url_is_http_or_https_to_a_host() {
        check(
            "http://127.0.0.1:8000",
            Some(("127.0.0.1:8000", "127.0.0.1:8000", false)),
        );
        check("http://engine", Some(("engine:80", "engine", false)));
        check("http://[::1]:9", Some(("[::1]:9", "[::1]:9", false)));
        check("https://engine", Some(("engine:443", "engine", true)));
        check("https://[::1]:9", Some(("[::1]:9", "[::1]:9", true)));
        for bad in [
            "ftp://a:1",
            "http://a:1/v1",
            "a:1",
            "",
            "http://",
            "https://a_:1/x",
        ] {
            check(bad, None);
        }
    }

    #[tokio::test]
    async fn what_is_written_to_a_worker_leaves_at_once() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = Target::new(&url).unwrap();
        let opened = target.open((None, false), Duration::from_secs(20)).await.unwrap();
        let (Stream::Plain(stream), false) = opened else {
            panic!("it is plain");
        };
        assert!(stream.nodelay().unwrap());
    }
}
