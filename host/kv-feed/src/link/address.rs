//! Addresses of ZMQ endpoints: `tcp://host:port` and `ipc://path`.

use std::ffi::OsString;
use std::path::PathBuf;

use thiserror::Error;

/// Address of a publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PublisherAddress {
    Tcp {
        host: String,
        port: u16,
    },
    /// A path; with a leading zero byte a name in Linux's abstract namespace.
    Unix(PathBuf),
}

/// Error of parsing an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AddressError {
    /// Another transport, or none.
    #[error("it begins with neither tcp:// nor ipc://")]
    Transport,
    /// No host or no port.
    #[error("it is not tcp://HOST:PORT")]
    Tcp,
    /// No path, or an impossible one for a socket.
    #[error("its path is empty or longer than {MAX_PATH} bytes")]
    Path,
}

/// Size of Linux's `sun_path` without its terminator.
const MAX_PATH: usize = 107;

impl PublisherAddress {
    pub(super) fn parse(endpoint: &str) -> Result<Self, AddressError> {
        match endpoint.split_once("://") {
            Some(("tcp", address)) => {
                let (host, port) = address.rsplit_once(':').ok_or(AddressError::Tcp)?;
                let port = port.parse().map_err(|_| AddressError::Tcp)?;
                let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
                let host = inner.unwrap_or(host);
                if host.is_empty() {
                    return Err(AddressError::Tcp);
                }
                Ok(Self::Tcp {
                    host: host.to_owned(),
                    port,
                })
            }
            Some(("ipc", path)) if (1..=MAX_PATH).contains(&path.len()) => Ok(Self::Unix(unix_path(path))),
            Some(("ipc", _)) => Err(AddressError::Path),
            _ => Err(AddressError::Transport),
        }
    }
}

/// Converts a path. ZMQ spells the abstract namespace with an `@`.
fn unix_path(path: &str) -> PathBuf {
    match path.strip_prefix('@') {
        Some(name) => OsString::from(format!("\0{name}")).into(),
        None => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> PublisherAddress {
        PublisherAddress::Tcp {
            host: host.to_owned(),
            port,
        }
    }

    #[test]
    fn both_transports_are_read() {
        assert_eq!(
            PublisherAddress::parse("tcp://gpu-1:5557"),
            Ok(tcp("gpu-1", 5557))
        );
        assert_eq!(PublisherAddress::parse("tcp://[::1]:1"), Ok(tcp("::1", 1)));
        assert_eq!(PublisherAddress::parse("tcp://*:1"), Ok(tcp("*", 1)));
        assert_eq!(
            PublisherAddress::parse("ipc:///run/kv"),
            Ok(PublisherAddress::Unix("/run/kv".into()))
        );
        assert_eq!(
            PublisherAddress::parse("ipc://@kv"),
            Ok(PublisherAddress::Unix("\0kv".into()))
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, fault) in [
            ("nonsense", AddressError::Transport),
            ("inproc://a", AddressError::Transport),
            ("tcp://host", AddressError::Tcp),
            ("tcp://:1", AddressError::Tcp),
            ("tcp://host:70000", AddressError::Tcp),
            ("ipc://", AddressError::Path),
        ] {
            assert_eq!(PublisherAddress::parse(text), Err(fault), "{text}");
        }
        let long = format!("ipc://{}", "a".repeat(MAX_PATH + 1));
        assert_eq!(PublisherAddress::parse(&long), Err(AddressError::Path));
    }
}
