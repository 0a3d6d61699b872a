//! Worker address: the parsed form of a worker's URL.

use std::net::SocketAddr;

use http::HeaderValue;
use http::uri::{Authority, Scheme, Uri};
use rustls::pki_types::ServerName;
use thiserror::Error;

use crate::tls;

/// Error of a worker URL to which no connection can be opened.
#[derive(Debug, Error)]
pub enum UrlError {
    /// The address is not a URL.
    #[error("parse URL `{url}`")]
    Unreadable {
        /// The configured text.
        url: Box<str>,
        /// The parser's error.
        #[source]
        source: http::uri::InvalidUri,
    },
    /// The address does not have the form `http://host:port`.
    #[error("use URL `{url}`: it must have the form `http://host:port` or `https://host:port`")]
    Unsupported {
        /// The configured text.
        url: Box<str>,
    },
}

/// Scheme and authority, which HTTP/2 requests carry in place of `Host`.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
}

/// Parsed URL of a worker.
#[derive(Debug)]
pub(crate) struct WorkerAddress {
    /// `host:port`.
    pub(crate) address: Box<str>,
    /// Value of the `Host` header.
    pub(crate) host: HeaderValue,
    /// Equivalent of the `Host` header in HTTP/2 requests.
    pub(crate) origin: Origin,
    /// Host name that the worker's certificate must have. `None` for a worker without TLS.
    pub(crate) server_name: Option<ServerName<'static>>,
    /// Socket address, if the host is an IP address.
    pub(crate) fixed: Option<SocketAddr>,
}

impl WorkerAddress {
    /// Parses `http://host:port` or `https://host:port`.
    pub(crate) fn parse(url: &str) -> Result<Self, UrlError> {
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
        let server_name = is_secure.then(|| tls::server_name(host));
        Ok(Self {
            fixed: address.parse().ok(),
            address: address.into(),
            host: HeaderValue::from_str(authority).map_err(|_| unsupported())?,
            origin: Origin {
                scheme,
                authority: named.clone(),
            },
            server_name: server_name.transpose().map_err(|_| unsupported())?,
        })
    }

    /// Returns whether the worker uses TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.server_name.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: Option<(&str, &str, bool)>) {
        let address = WorkerAddress::parse(url).ok();
        let parts = address.as_ref().map(|address| {
            let host = address.host.to_str().unwrap();
            (&*address.address, host, address.server_name.is_some())
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
}
