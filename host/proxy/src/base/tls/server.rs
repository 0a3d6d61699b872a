//! TLS settings of a listener: its certificate, and the client certificates it requires.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsStream};
use worker_client::tls::{Stream, TlsError, pem, provider};

use super::expiry;

const HTTP_1_1: &[u8] = b"http/1.1";
const HTTP_2: &[u8] = b"h2";

/// Content of the PEM files.
#[derive(Clone, Copy)]
pub struct ServerTlsParts<'a> {
    /// Certificate chain, leaf first.
    pub certificate: &'a [u8],
    /// Private key of the certificate.
    pub key: &'a [u8],
    /// Authorities that sign client certificates. `None`: clients need no certificate.
    pub client_authorities: Option<&'a [u8]>,
}

/// TLS settings of a listener: TLS 1.2 or 1.3, HTTP/2 or HTTP/1.1 by ALPN, session resumption by tickets.
pub struct ServerTls {
    /// Offers HTTP/1.1 alone.
    config: Arc<ServerConfig>,
    /// Offers HTTP/2 first.
    with_http2: Arc<ServerConfig>,
    not_after: Option<SystemTime>,
}

impl ServerTls {
    /// Parses the PEM files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn new(parts: ServerTlsParts<'_>) -> Result<Self, TlsError> {
        let chain = pem::certificates(parts.certificate, "the certificate")?;
        let key = pem::key(parts.key)?;
        let not_after = chain.first().and_then(|first| expiry::not_after(first));
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Identity)?;
        let builder = match parts.client_authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let roots = Arc::new(pem::authorities(authorities)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
                builder.with_client_cert_verifier(verifier.map_err(TlsError::Clients)?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Identity)?;
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        let mut with_http2 = config.clone();
        with_http2.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            with_http2: Arc::new(with_http2),
            not_after,
        })
    }

    /// Returns the end of the certificate's validity.
    #[must_use]
    pub fn not_after(&self) -> Option<SystemTime> {
        self.not_after
    }

    /// Runs the TLS handshake. Returns whether the client chose HTTP/2.
    pub(crate) async fn accept(&self, stream: TcpStream, offers_http2: bool) -> io::Result<(Stream, bool)> {
        let config = if offers_http2 {
            &self.with_http2
        } else {
            &self.config
        };
        let stream = TlsAcceptor::from(Arc::clone(config)).accept(stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
        Ok((Stream::Tls(Box::new(TlsStream::Server(stream))), is_http2))
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}
