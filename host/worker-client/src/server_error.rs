//! Error of a server to which no client can be created.

use thiserror::Error;

use crate::address::UrlError;
use crate::tls::TlsError;

/// Error of a server to which no client can be created.
#[derive(Debug, Error)]
pub enum ServerClientError {
    /// The address is unusable.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The authorities of `https://` servers are unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
