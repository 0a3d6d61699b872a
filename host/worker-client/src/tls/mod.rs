//! TLS of connections: settings for workers, PEM files, and the stream type that servers share.
//!
//! The composition root reads the files; this module sees their bytes.

pub mod pem;
mod stream;
mod worker;

use std::io;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::VerifierBuilderError;
use thiserror::Error;

pub use self::stream::Stream;
#[cfg(test)]
pub(crate) use self::worker::tests::trusting_none;
pub use self::worker::{WorkerTls, WorkerTlsParts, server_name};

/// Error of a certificate, key or authority. The caller adds its purpose and its file name.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The content is not PEM, or has other items.
    #[error("failed to read {what}: {why}")]
    Pem {
        /// Certificates, a key or authorities.
        what: &'static str,
        /// Reason, without any content of the file.
        why: String,
    },
    /// Certificate and key do not match, or are unusable.
    #[error("failed to use the certificate with its key")]
    Identity(#[source] rustls::Error),
    /// An authority's certificate is unusable.
    #[error("failed to trust an authority")]
    Authority(#[source] rustls::Error),
    /// The authorities of client certificates are unusable.
    #[error("failed to request certificates of clients")]
    Clients(#[source] VerifierBuilderError),
    /// The system has no trusted authorities.
    #[error("failed to find the authorities that the system trusts")]
    System(#[source] io::Error),
    /// The text is not a valid server name.
    #[error("failed to use `{name}` as the name of a server")]
    Name {
        /// The configured text.
        name: Box<str>,
    },
}

/// Returns the cryptography provider: ring.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
