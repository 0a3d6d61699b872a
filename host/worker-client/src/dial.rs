//! Opening of connections: name resolution for each attempt, and all addresses of the name within one time limit.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::address::WorkerAddress;
use crate::tls::{Stream, WorkerTls};

/// Maximum number of addresses tried per name. They share the time limit.
const MAX_ADDRESSES: usize = 8;

/// Error of a connection that could not be opened.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The name could not be resolved, or the socket failed.
    #[error("connect to `{address}`")]
    Io {
        /// `host:port`.
        address: Box<str>,
        /// Cause.
        #[source]
        source: io::Error,
    },
    #[error("connect to `{address}` within {limit:?}")]
    /// The time limit was exceeded.
    Timeout {
        /// `host:port`.
        address: Box<str>,
        /// The limit.
        limit: Duration,
    },
    /// The HTTP handshake failed.
    #[error("begin HTTP with `{address}`")]
    Handshake {
        /// `host:port`.
        address: Box<str>,
        /// Cause.
        #[source]
        source: hyper::Error,
    },
    /// The TLS handshake failed.
    #[error("begin TLS with `{address}`")]
    Tls {
        /// `host:port`.
        address: Box<str>,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// All permitted connections were in use. The worker is not at fault.
    #[error("get one of the connections to `{address}` that may be in use within {limit:?}")]
    NoPermit {
        /// `host:port`.
        address: Box<str>,
        /// The limit.
        limit: Duration,
    },
}

impl ConnectError {
    /// Returns `true` if the host refused the connection, because no process listens there.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Returns `true` if the host's certificate is that of an authority (`CA:TRUE`), which no server may have.
    #[must_use]
    pub fn is_of_authority(&self) -> bool {
        // The text of the TLS library: its error has no type here.
        matches!(self, Self::Tls { source, .. } if source.to_string().contains("CaUsedAsEndEntity"))
    }
}

/// Security and protocol of a new connection.
#[derive(Debug, Clone)]
pub(crate) struct DialOptions {
    /// TLS settings for `https://` workers.
    pub(crate) tls: Option<Arc<WorkerTls>>,
    /// Set if HTTP/2 is offered.
    pub(crate) offers_http2: bool,
}

/// Open stream to a worker, after the TLS handshake.
pub(crate) struct DialedStream {
    pub(crate) stream: Stream,
    pub(crate) peer: IpAddr,
    /// Set if HTTP/2 is spoken: chosen by the worker behind TLS, and always otherwise if it was offered.
    pub(crate) is_http2: bool,
}

impl WorkerAddress {
    /// Opens a connection within the limit, including the TLS handshake.
    pub(crate) async fn dial(
        &self,
        options: DialOptions,
        limit: Duration,
    ) -> Result<DialedStream, ConnectError> {
        let deadline = Instant::now() + limit;
        let timed_out = || ConnectError::Timeout {
            address: self.address.clone(),
            limit,
        };
        let addresses = timeout(limit, self.resolve()).await.map_err(|_| timed_out())??;
        let mut failed = timed_out();
        for (at, address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let others = u32::try_from(addresses.len() - at).unwrap_or(1);
            match timeout(left / others, self.dial_address(*address, &options)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failed = error,
                Err(_) => failed = timed_out(),
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
            .take(MAX_ADDRESSES)
            .collect();
        if found.is_empty() {
            return Err(self.io(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
        }
        Ok(found)
    }

    async fn dial_address(
        &self,
        address: SocketAddr,
        options: &DialOptions,
    ) -> Result<DialedStream, ConnectError> {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|source| self.io(source))?;
        stream.set_nodelay(true).map_err(|source| self.io(source))?;
        let Some(host) = &self.server_name else {
            return Ok(DialedStream {
                stream: Stream::Plain(stream),
                peer: address.ip(),
                is_http2: options.offers_http2,
            });
        };
        let failed = |source| ConnectError::Tls {
            address: self.address.clone(),
            source,
        };
        let unset = || {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "no certificate authorities are configured",
            )
        };
        let tls = options.tls.as_ref().ok_or_else(|| failed(unset()))?;
        let (stream, is_http2) = tls
            .connect(host, stream, options.offers_http2)
            .await
            .map_err(failed)?;
        Ok(DialedStream {
            stream,
            peer: address.ip(),
            is_http2,
        })
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
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::ServerConfig;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::tls::{WorkerTlsParts, provider};

    /// Returns the error of a handshake with a server whose certificate signs itself. The client trusts it alone.
    async fn handshake_error(host: &str, is_ca: IsCa) -> ConnectError {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.is_ca = is_ca;
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::clone(certificate.der())],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let authorities = certificate.pem();
        let tls = WorkerTls::new(WorkerTlsParts {
            authorities: Some(authorities.as_bytes()),
            ..WorkerTlsParts::default()
        });
        let options = DialOptions {
            tls: Some(Arc::new(tls.unwrap())),
            offers_http2: false,
        };
        let address = WorkerAddress::parse(&url).unwrap();
        let serving = async {
            let (stream, _) = listener.accept().await.unwrap();
            TlsAcceptor::from(Arc::new(server)).accept(stream).await
        };
        let dialing = address.dial(options, Duration::from_secs(20));
        let (dialed, _) = tokio::join!(dialing, serving);
        dialed.err().expect("an error")
    }

    #[tokio::test]
    async fn an_authoritys_certificate_is_told_from_another_that_is_refused() {
        let authority = IsCa::Ca(BasicConstraints::Unconstrained);
        let error = handshake_error("127.0.0.1", authority).await;
        assert!(error.is_of_authority(), "{error:?}");
        let error = handshake_error("other.test", IsCa::NoCa).await;
        assert!(matches!(error, ConnectError::Tls { .. }), "{error:?}");
        assert!(!error.is_of_authority(), "{error:?}");
    }

    #[tokio::test]
    async fn connections_to_workers_have_nodelay_set() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let address = WorkerAddress::parse(&url).unwrap();
        let options = DialOptions {
            tls: None,
            offers_http2: false,
        };
        let opened = address.dial(options, Duration::from_secs(20)).await.unwrap();
        let (Stream::Plain(stream), false) = (opened.stream, opened.is_http2) else {
            panic!("expected a plain HTTP/1.1 stream");
        };
        assert!(stream.nodelay().unwrap());
    }
}
