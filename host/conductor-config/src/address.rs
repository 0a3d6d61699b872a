//! Listen addresses, and the `host:port` part of URLs and endpoints.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::document::code::Code;
use crate::document::redact::without_user;
use crate::document::report::Problem;
use crate::document::value::Item;

/// Longest name of a host, in bytes, as in DNS.
const LONGEST_HOST: usize = 253;
/// Longest label of a name, in bytes, as in DNS.
const LONGEST_LABEL: usize = 63;

/// Reason why a `host:port` cannot be read; each ends the sentence "`x` is not ...: ".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostPortFault {
    NoHost,
    BadHost,
    NoPort,
    BadPort,
}

impl HostPortFault {
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::NoHost => "it has no host",
            Self::BadHost => "its host is neither a name nor an address",
            Self::NoPort => "it has no port",
            Self::BadPort => "its port is not a number from 1 to 65535",
        }
    }
}

/// Reads `host:port` or `[v6]:port` into the host (brackets kept) and the port.
pub(crate) fn split_host_port(text: &str) -> Result<(&str, u16), HostPortFault> {
    let (host, port) = match text.rfind(']') {
        Some(end) => {
            let (host, rest) = text.split_at(end + 1);
            (host, rest.strip_prefix(':').ok_or(HostPortFault::NoPort)?)
        }
        None => text.rsplit_once(':').ok_or(if text.is_empty() {
            HostPortFault::NoHost
        } else {
            HostPortFault::NoPort
        })?,
    };
    if host.is_empty() {
        return Err(HostPortFault::NoHost);
    }
    if !is_host(host) {
        return Err(HostPortFault::BadHost);
    }
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|&port: &u16| digits && port > 0);
    Ok((host, port.ok_or(HostPortFault::BadPort)?))
}

/// Reads `host:port`, or a host alone with the default port of its scheme.
pub(crate) fn split_host_or_port(text: &str, default: u16) -> Result<(&str, u16), HostPortFault> {
    match split_host_port(text) {
        Err(HostPortFault::NoPort) if is_host(text) => Ok((text, default)),
        split => split,
    }
}

/// Returns the canonical form of a host: lower case, and IPv6 addresses as in RFC 5952.
pub(crate) fn one_spelling(host: &str) -> String {
    v6(host).map_or_else(|| host.to_ascii_lowercase(), |address| format!("[{address}]"))
}

fn v6(host: &str) -> Option<Ipv6Addr> {
    let inner = host.strip_prefix('[')?.strip_suffix(']')?;
    inner.parse().ok()
}

fn is_host(host: &str) -> bool {
    if host.starts_with('[') {
        return v6(host).is_some();
    }
    host.len() <= LONGEST_HOST
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

/// Returns `true` if a certificate can be checked for this host: an IP address, or a name as in DNS.
pub(crate) fn has_certificates(host: &str) -> bool {
    if v6(host).is_some() || host.parse::<Ipv4Addr>().is_ok() {
        return true;
    }
    let is_label = |label: &str| {
        let is_bounded = (1..=LONGEST_LABEL).contains(&label.len());
        is_bounded && !label.starts_with('-') && !label.ends_with('-')
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    let last = name.rsplit('.').next().unwrap_or_default();
    // Else it is a mistyped IPv4 address.
    let ends_in_name = last.bytes().any(|byte| !byte.is_ascii_digit());
    ends_in_name && name.split('.').all(is_label)
}

/// Reads the address of a key such as `listen`. Port 0 is any free port.
pub(crate) fn listen_address(item: &Item<'_>) -> Option<SocketAddr> {
    let text = item.text()?;
    if let Ok(address) = text.text.parse() {
        return Some(address);
    }
    let help = match text.text.strip_prefix(':').or(text.text.strip_prefix("*:")) {
        Some(port) => format!("write \"0.0.0.0:{port}\" to listen on every interface"),
        None => match text.text.strip_prefix("localhost:") {
            Some(port) => format!("write \"127.0.0.1:{port}\""),
            None => "write an IP address and a port, for example \"127.0.0.1:8080\"".to_owned(),
        },
    };
    item.report.push(
        Problem::new(
            Code::InvalidAddress,
            &text.span,
            format!("`{}` is not an address to listen on", without_user(text.text)),
        )
        .help(help),
    );
    None
}

/// Returns `true` if listeners on these addresses would collide.
pub(crate) fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let same_interface = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && same_interface
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_names_and_both_kinds_of_addresses() {
        let check = |text, expected| assert_eq!(split_host_port(text), expected, "{text}");
        check("gpu-1.local:8000", Ok(("gpu-1.local", 8000)));
        check("10.0.0.1:1", Ok(("10.0.0.1", 1)));
        check("[::1]:8000", Ok(("[::1]", 8000)));
        check("", Err(HostPortFault::NoHost));
        check(":8000", Err(HostPortFault::NoHost));
        check("gpu", Err(HostPortFault::NoPort));
        check("[::1]", Err(HostPortFault::NoPort));
        check("gpu:0", Err(HostPortFault::BadPort));
        check("gpu:+80", Err(HostPortFault::BadPort));
        check("gpu:65536", Err(HostPortFault::BadPort));
        check("::1:8000", Err(HostPortFault::BadHost));
        check("user@gpu:80", Err(HostPortFault::BadHost));
        check("*:80", Err(HostPortFault::BadHost));
        let too_long = format!("{}:80", "a".repeat(254));
        check(&too_long, Err(HostPortFault::BadHost));
        check(&too_long[1..], Ok((&too_long[1..254], 80)));
    }

    #[test]
    fn a_host_alone_has_the_default_port() {
        let check = |text, expected| assert_eq!(split_host_or_port(text, 80), expected, "{text}");
        check("gpu", Ok(("gpu", 80)));
        check("[::1]", Ok(("[::1]", 80)));
        check("gpu:8000", Ok(("gpu", 8000)));
        check("", Err(HostPortFault::NoHost));
        check("gpu:", Err(HostPortFault::BadPort));
        check("us er", Err(HostPortFault::NoPort));
    }

    #[test]
    fn a_host_has_one_spelling() {
        let check = |host, expected| assert_eq!(one_spelling(host), expected);
        check("GPU-1.Local", "gpu-1.local");
        check("[2001:DB8:0:0::0001]", "[2001:db8::1]");
        check("[0:0:0:0:0:0:0:1]", "[::1]");
    }

    #[test]
    fn certificates_are_for_addresses_and_names_of_dns() {
        let long = "a".repeat(63);
        for host in ["gpu-1", "a_b.c.", "1-2", "10.0.0.1", "[::1]", "x1", "1.x", &long] {
            assert!(has_certificates(host), "{host}");
        }
        let too_long = "a".repeat(64);
        for host in [
            "10.0.0.300",
            "gpu.7",
            "7",
            "1.2.",
            "a..b",
            ".a",
            "gpu-.x",
            "-a",
            ".",
            &too_long,
        ] {
            assert!(!has_certificates(host), "{host}");
        }
    }

    #[test]
    fn listeners_collide_on_one_port_of_one_interface() {
        let check = |one: &str, other: &str, expected| {
            assert_eq!(
                collide(one.parse().unwrap(), other.parse().unwrap()),
                expected,
                "{one} {other}"
            );
        };
        check("127.0.0.1:80", "127.0.0.1:80", true);
        check("0.0.0.0:80", "127.0.0.1:80", true);
        check("127.0.0.2:80", "127.0.0.1:80", false);
        check("127.0.0.1:80", "127.0.0.1:81", false);
        check("127.0.0.1:0", "127.0.0.1:0", false);
    }
}
