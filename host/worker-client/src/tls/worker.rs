//! TLS settings for connections to workers.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, TlsStream};

use super::stream::Stream;
use super::{TlsError, pem, provider};

const HTTP_1_1: &[u8] = b"http/1.1";
const HTTP_2: &[u8] = b"h2";

/// Content of the PEM files, and the server name.
#[derive(Clone, Copy, Default)]
pub struct WorkerTlsParts<'a> {
    /// Authorities that sign the workers' certificates. `None`: the system's trusted authorities.
    pub authorities: Option<&'a [u8]>,
    /// Client certificate and its key, for workers that request one.
    pub identity: Option<(&'a [u8], &'a [u8])>,
    /// Name in the workers' certificates. `None`: the host of each URL.
    pub server_name: Option<&'a str>,
}

/// TLS settings for a pool's `https://` workers.
pub struct WorkerTls {
    /// Offers HTTP/1.1 alone.
    config: Arc<ClientConfig>,
    /// Offers HTTP/2 first.
    with_http2: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl WorkerTls {
    /// Parses the PEM files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn new(parts: WorkerTlsParts<'_>) -> Result<Self, TlsError> {
        let roots = match parts.authorities {
            Some(authorities) => pem::authorities(authorities)?,
            None => system_authorities()?,
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Identity)?
            .with_root_certificates(roots);
        let mut config = match parts.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = pem::certificates(certificate, "the certificate")?;
                builder
                    .with_client_auth_cert(chain, pem::key(key)?)
                    .map_err(TlsError::Identity)?
            }
        };
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        let mut with_http2 = config.clone();
        with_http2.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            with_http2: Arc::new(with_http2),
            server_name: parts.server_name.map(server_name).transpose()?,
        })
    }

    /// Returns settings that trust the system's authorities. They are read on the first success, and kept.
    ///
    /// # Errors
    /// [`TlsError::System`].
    pub fn of_system() -> Result<Arc<Self>, TlsError> {
        static SYSTEM: Mutex<Option<Arc<WorkerTls>>> = Mutex::new(None);
        let mut system = SYSTEM.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tls) = &*system {
            return Ok(Arc::clone(tls));
        }
        let tls = Arc::new(Self::new(WorkerTlsParts::default())?);
        *system = Some(Arc::clone(&tls));
        Ok(tls)
    }

    /// Runs the TLS handshake with the worker `host`. Returns whether the worker chose HTTP/2.
    ///
    /// # Errors
    /// Errors of the socket and the handshake.
    pub async fn connect(
        &self,
        host: &ServerName<'static>,
        stream: TcpStream,
        offers_http2: bool,
    ) -> io::Result<(Stream, bool)> {
        let name = self.server_name.as_ref().unwrap_or(host).clone();
        let config = if offers_http2 {
            &self.with_http2
        } else {
            &self.config
        };
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = connector.connect(name, stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
        Ok((Stream::Tls(Box::new(TlsStream::Client(stream))), is_http2))
    }
}

/// Parses a host as the server name of a certificate.
///
/// # Errors
/// [`TlsError::Name`].
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let name = bare.unwrap_or(host).to_owned();
    ServerName::try_from(name).map_err(|_| TlsError::Name { name: host.into() })
}

fn system_authorities() -> Result<RootCertStore, TlsError> {
    let mut found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Old stores contain certificates that rustls rejects.
    let (added, _) = roots.add_parsable_certificates(std::mem::take(&mut found.certs));
    if added == 0 {
        let why = found
            .errors
            .first()
            .map_or_else(|| "there are none".to_owned(), ToString::to_string);
        return Err(TlsError::System(io::Error::new(io::ErrorKind::NotFound, why)));
    }
    Ok(roots)
}

impl fmt::Debug for WorkerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerTls")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns settings that trust no authority.
    pub(crate) fn trusting_none() -> Arc<WorkerTls> {
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let config = builder.with_root_certificates(RootCertStore::empty());
        let config = Arc::new(config.with_no_client_auth());
        Arc::new(WorkerTls {
            with_http2: Arc::clone(&config),
            config,
            server_name: None,
        })
    }
}
