//! Addresses that load may be sent to: this machine's own, and no other.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

/// An address on the loopback interface. There is no way to build another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loopback(SocketAddr);

/// Reason for which a text is no target.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TargetError {
    /// The text is not `http://IP:PORT`.
    #[error("read the target `{0}`: expected http://127.0.0.1:PORT")]
    Unreadable(String),
    /// An address of another machine, or one that others may reach.
    #[error("accept the target `{0}`: load is only ever sent to loopback addresses")]
    NotLoopback(SocketAddr),
}

impl Loopback {
    /// Returns 127.0.0.1 with this port.
    #[must_use]
    pub fn port(port: u16) -> Self {
        Self(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Returns the address.
    #[must_use]
    pub fn address(self) -> SocketAddr {
        self.0
    }
}

impl FromStr for Loopback {
    type Err = TargetError;

    /// Reads `http://IP:PORT`, with or without the scheme and a final slash; `localhost` stands for 127.0.0.1. Names
    /// are not resolved: a resolver could answer with any address.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let authority = text.strip_prefix("http://").unwrap_or(text);
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let address = match authority.strip_prefix("localhost:") {
            Some(port) => port
                .parse()
                .map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
                .ok(),
            None => authority.parse().ok(),
        };
        let address = address.ok_or_else(|| TargetError::Unreadable(text.to_owned()))?;
        if address.ip().is_loopback() {
            Ok(Self(address))
        } else {
            Err(TargetError::NotLoopback(address))
        }
    }
}

impl fmt::Display for Loopback {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(
            text.parse::<Loopback>()
                .ok()
                .map(|target| target.to_string())
                .as_deref(),
            expected,
            "{text}"
        );
    }

    #[test]
    fn accepts_loopback_addresses_only() {
        check("http://127.0.0.1:8080", Some("http://127.0.0.1:8080"));
        check("127.3.2.1:80/", Some("http://127.3.2.1:80"));
        check("http://[::1]:8080", Some("http://[::1]:8080"));
        check("localhost:9000", Some("http://127.0.0.1:9000"));
        check("http://10.0.0.1:8080", None);
        check("http://0.0.0.0:8080", None);
        check("http://8.8.8.8:80", None);
        check("https://127.0.0.1:443", None);
        check("http://localhost.example.com:80", None);
        check("http://127.0.0.1:80@8.8.8.8:80", None);
        check("127.0.0.1", None);
    }
}
