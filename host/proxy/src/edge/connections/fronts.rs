//! Trusted proxies (`X-Forwarded-For`): the client's address of a request, and the limit on concurrent requests of an
//! address. Forwarding headers of an untrusted peer are removed.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use super::ConnectionLimiter;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Headers accepted from trusted proxies only. The others are not read: a proxy that does not know them passes on its
/// clients' values.
const NAMES: [HeaderName; 3] = [
    X_FORWARDED_FOR,
    http::header::FORWARDED,
    HeaderName::from_static("x-real-ip"),
];

/// Sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The peer itself, or a client that the trusted proxy does not name.
    Peer(Option<IpAddr>),
    /// A client behind a trusted proxy.
    Behind(IpAddr),
}

impl Sender {
    pub(crate) fn address(self) -> Option<IpAddr> {
        match self {
            Self::Peer(peer) => peer,
            Self::Behind(client) => Some(client),
        }
    }
}

/// Determines the sender of a request. Removes the forwarding headers of an untrusted peer.
pub(crate) fn sender(fronts: &[IpNet], peer: Option<IpAddr>, headers: &mut HeaderMap) -> Sender {
    if !peer.is_some_and(|peer| is_front(fronts, peer)) {
        for name in NAMES {
            headers.remove(name);
        }
        return Sender::Peer(peer);
    }
    client(fronts, headers).map_or(Sender::Peer(peer), Sender::Behind)
}

/// Returns `true` if the peer is a trusted proxy.
pub(crate) fn is_front(fronts: &[IpNet], peer: IpAddr) -> bool {
    let peer = peer.to_canonical();
    fronts.iter().any(|front| front.contains(&peer))
}

/// Returns the last address that is not a trusted proxy's, or else the first. Each proxy appends the address of its
/// peer.
fn client(fronts: &[IpNet], headers: &HeaderMap) -> Option<IpAddr> {
    let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let addresses = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    let mut first = None;
    for address in addresses {
        // Entries before an invalid address are not trustworthy.
        let address = parse(address.trim_ascii())?.to_canonical();
        first = Some(address);
        if !is_front(fronts, address) {
            break;
        }
    }
    first
}

/// Parses an address. Some proxies append a port.
fn parse(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = bare.unwrap_or(text).parse().ok();
    address.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

/// Concurrent request of a forwarded address. Dropping it ends the count.
#[derive(Debug)]
pub(crate) struct Forwarded {
    limiter: Arc<ConnectionLimiter>,
    client: IpAddr,
}

impl Forwarded {
    /// Counts the request. Returns `None` if the address has reached `limit` connections and requests.
    pub(super) fn begin(
        limiter: &Arc<ConnectionLimiter>,
        client: IpAddr,
        limit: Option<usize>,
    ) -> Option<Self> {
        limiter.register.add(client, limit).then(|| Self {
            limiter: Arc::clone(limiter),
            client,
        })
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.limiter.register.remove(self.client);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const FRONTS: [&str; 2] = ["10.0.0.0/8", "2001:db8::/32"];

    fn headers(lines: &[&str]) -> HeaderMap {
        let line = |line: &&str| (X_FORWARDED_FOR, HeaderValue::try_from(*line).unwrap());
        lines.iter().map(line).collect()
    }

    #[track_caller]
    fn check(peer: &str, lines: &[&str], expected: Option<&str>) {
        let fronts = FRONTS.map(|front| front.parse().unwrap());
        let peer: IpAddr = peer.parse().unwrap();
        let expected = expected.map_or(Sender::Peer(Some(peer)), |client| {
            Sender::Behind(client.parse().unwrap())
        });
        assert_eq!(
            sender(&fronts, Some(peer), &mut headers(lines)),
            expected,
            "{lines:?}"
        );
    }

    #[test]
    fn a_front_is_believed_the_last_address_that_is_not_its_own() {
        check("10.0.0.1", &["192.0.2.7"], Some("192.0.2.7"));
        check("::ffff:10.0.0.1", &["192.0.2.7"], Some("192.0.2.7"));
        check("10.0.0.1", &["6.6.6.6, 192.0.2.7, 10.2.3.4"], Some("192.0.2.7"));
        check(
            "10.0.0.1",
            &["6.6.6.6", "192.0.2.7", "10.2.3.4, 2001:db8::5"],
            Some("192.0.2.7"),
        );
        check("10.0.0.1", &["192.0.2.7:4711"], Some("192.0.2.7"));
        check("10.0.0.1", &["[2001:dead::1]:80"], Some("2001:dead::1"));
        check("10.0.0.1", &["[2001:dead::1]"], Some("2001:dead::1"));
        // All addresses belong to the operator.
        check("10.0.0.1", &["10.9.9.9, 10.2.3.4"], Some("10.9.9.9"));
    }

    #[test]
    fn an_invalid_address_hides_the_addresses_before_it() {
        check("10.0.0.1", &["192.0.2.7, unknown"], None);
        check("10.0.0.1", &["192.0.2.7, 10.0.0.9, , 10.0.0.8"], None);
        check("10.0.0.1", &[], None);
    }

    #[test]
    fn no_other_source_is_believed_or_passed_on() {
        check("192.0.2.9", &["192.0.2.7"], None);
        let mut headers = headers(&["1.1.1.1", "2.2.2.2"]);
        headers.insert(http::header::FORWARDED, HeaderValue::from_static("for=1.1.1.1"));
        headers.insert("x-real-ip", HeaderValue::from_static("1.1.1.1"));
        headers.insert("x-tenant", HeaderValue::from_static("t"));
        sender(&[], Some([127, 0, 0, 1].into()), &mut headers);
        let left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-tenant"]);
    }
}
