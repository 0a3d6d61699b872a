//! TLS, in and out: what is read off PEM files, and the streams that come of it. Files are the composition root's affair;
//! this sees their bytes.

mod expiry;
mod pem;
mod server;
mod stream;
mod worker;

use std::io;

use rustls::server::VerifierBuilderError;
use thiserror::Error;

pub use self::server::{ServerTls, ServerTlsParts};
pub(crate) use self::stream::Stream;
pub(crate) use self::worker::name as server_name;
pub use self::worker::{WorkerTls, WorkerTlsParts};

/// What a certificate, key or authority is for is told by whoever names its file.
#[derive(Debug, Error)]
pub enum TlsError {
    /// It is no PEM file, or one of something else.
    #[error("failed to read {what}: {why}")]
    Pem {
        /// Certificates, a key or authorities.
        what: &'static str,
        /// What is wrong, without its content.
        why: String,
    },
    /// Certificate and key do not go together, or cannot be used.
    #[error("failed to use the certificate with its key")]
    Identity(#[source] rustls::Error),
    /// An authority's certificate cannot be used.
    #[error("failed to trust an authority")]
    Authority(#[source] rustls::Error),
    /// The authorities of clients make no sense.
    #[error("failed to ask clients for certificates")]
    Clients(#[source] VerifierBuilderError),
    /// The system knows no authorities.
    #[error("failed to find the authorities that the system trusts")]
    System(#[source] io::Error),
    /// Not a name that a certificate can be made out to.
    #[error("failed to use `{name}` as the name of a server")]
    Name {
        /// As configured.
        name: Box<str>,
    },
}

/// The cryptography there is: ring's.
fn provider() -> std::sync::Arc<rustls::crypto::CryptoProvider> {
    std::sync::Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
mod tests;
