//! Trust in the endpoints that a worker reports: its own host, at most one feed per rank, file sockets of this machine
//! only.
//!
//! Without these limits a worker could make the router connect to any address.

use std::net::IpAddr;

use inference_api::EventSource;
use serde::Serialize;

use super::targets::Target;

/// Feeds of a worker whose ranks are not configured: more than any engine has behind one address.
pub(super) const MOST_UNDECLARED: usize = 64;
/// Refused endpoints that are kept of one answer.
const MOST_REFUSED: usize = 16;
/// Characters of an endpoint that are shown.
const LONGEST_SHOWN: usize = 200;

/// Endpoint that is not connected to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedSource {
    /// Rank of the source.
    pub rank: u16,
    /// Endpoint, shortened.
    pub endpoint: String,
    /// Reason of the refusal.
    pub reason: &'static str,
}

/// Splits the reported sources into trusted and refused ones.
pub fn trusted_sources(target: &Target, sources: Vec<EventSource>) -> (Vec<EventSource>, Vec<RefusedSource>) {
    let (mut followed, mut refused) = (Vec::<EventSource>::new(), Vec::new());
    for source in sources {
        let fault = fault(target, &followed, &source).map(|(endpoint, reason)| RefusedSource {
            rank: source.rank,
            endpoint: endpoint.chars().take(LONGEST_SHOWN).collect(),
            reason,
        });
        match fault {
            None => followed.push(source),
            Some(fault) if refused.len() < MOST_REFUSED => refused.push(fault),
            Some(_) => {}
        }
    }
    (followed, refused)
}

/// Returns the refused endpoint of a source and the reason, if it is refused.
fn fault<'a>(
    target: &Target,
    followed: &[EventSource],
    source: &'a EventSource,
) -> Option<(&'a str, &'static str)> {
    let endpoints = [Some(&*source.endpoint), source.replay.as_deref()];
    for endpoint in endpoints.into_iter().flatten() {
        if let Some(reason) = fault_of(target, endpoint) {
            return Some((endpoint, reason));
        }
    }
    if followed.iter().any(|known| known.rank == source.rank) {
        return Some((&source.endpoint, "another feed is of the same rank"));
    }
    let is_full = followed.len() >= most(target);
    is_full.then_some((
        &*source.endpoint,
        "the worker has fewer ranks than it names feeds",
    ))
}

/// Replaces the queried address by the worker's own host.
pub(super) fn at_own_host(mut source: EventSource, queried: IpAddr, own: &str) -> EventSource {
    let renamed = |endpoint: &str| {
        let is_own = host_of(endpoint)?
            .parse::<IpAddr>()
            .is_ok_and(|ip| same(ip, queried));
        let (_, port) = endpoint.rsplit_once(':')?;
        is_own.then(|| format!("tcp://{own}:{port}"))
    };
    if let Some(own) = renamed(&source.endpoint) {
        source.endpoint = own;
    }
    if let Some(own) = source.replay.as_deref().and_then(renamed) {
        source.replay = Some(own);
    }
    source
}

/// Feeds that a worker may have.
fn most(target: &Target) -> usize {
    let is_declared = target.publishers.iter().any(|publisher| publisher.rank.is_some());
    if is_declared {
        target.publishers.len()
    } else {
        MOST_UNDECLARED
    }
}

fn fault_of(target: &Target, endpoint: &str) -> Option<&'static str> {
    let own = bare(super::source_client::host_of(&target.url));
    if endpoint.starts_with("ipc://") {
        let is_allowed = target.ipc || is_loopback(own);
        return (!is_allowed).then_some("it is a socket in a file, and the worker is on another machine");
    }
    let host = host_of(endpoint)?;
    let is_listed = || {
        target
            .hosts
            .iter()
            .any(|listed| listed.eq_ignore_ascii_case(host))
    };
    let is_own = host.eq_ignore_ascii_case(own) || (is_loopback(host) && is_loopback(own));
    (!is_own && !is_listed())
        .then_some("it is at another host than the worker: `kv-events-hosts` may list it")
}

/// Returns the host of `tcp://host:port`, without brackets; none of another endpoint.
fn host_of(endpoint: &str) -> Option<&str> {
    let (host, _) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
    Some(bare(host))
}

fn bare(host: &str) -> &str {
    let inner = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    inner.unwrap_or(host)
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn same(one: IpAddr, other: IpAddr) -> bool {
    one.to_canonical() == other.to_canonical()
}

#[cfg(test)]
mod tests {
    use routing::{DpRank, WorkerId};

    use super::super::source_client::PageTls;
    use super::super::targets::Publisher;
    use super::*;

    fn target(url: &str, ranks: &[u16]) -> Target {
        let publisher = |rank: Option<u16>| Publisher {
            worker: WorkerId(1),
            name: "w".into(),
            rank: rank.map(DpRank),
        };
        let declared = ranks.iter().map(|&rank| publisher(Some(rank)));
        Target {
            name: "w".into(),
            url: url.into(),
            tls: PageTls::default(),
            authorization: worker_client::Authorization::Drop,
            publishers: if ranks.is_empty() {
                [publisher(None)].into()
            } else {
                declared.collect()
            },
            hosts: Box::default(),
            ipc: false,
            curve: None,
        }
    }

    fn source(rank: u16, endpoint: &str, replay: Option<&str>) -> EventSource {
        EventSource {
            rank,
            endpoint: endpoint.to_owned(),
            replay: replay.map(str::to_owned),
            topic: String::new(),
        }
    }

    fn is_followed(target: &Target, endpoint: &str) -> bool {
        let (followed, refused) = trusted_sources(target, vec![source(0, endpoint, None)]);
        assert_eq!(followed.len() + refused.len(), 1);
        refused.is_empty()
    }

    #[test]
    fn a_worker_is_followed_at_its_own_host_only() {
        let target = target("http://gpu-1:8000", &[]);
        assert!(is_followed(&target, "tcp://gpu-1:5557"));
        assert!(is_followed(&target, "tcp://GPU-1:5557"));
        for other in [
            "tcp://gpu-2:5557",
            "tcp://127.0.0.1:5557",
            "tcp://169.254.169.254:80",
        ] {
            assert!(!is_followed(&target, other), "{other}");
        }
        let replay = source(0, "tcp://gpu-1:1", Some("tcp://10.0.0.9:2"));
        let (followed, refused) = trusted_sources(&target, vec![replay]);
        assert_eq!(
            (followed.len(), refused[0].endpoint.as_str()),
            (0, "tcp://10.0.0.9:2")
        );
    }

    #[test]
    fn listed_hosts_and_names_of_the_loopback_are_followed() {
        let mut remote = target("http://gpu-1:8000", &[]);
        remote.hosts = ["10.0.0.7".into(), "fd00::1".into()].into();
        assert!(is_followed(&remote, "tcp://10.0.0.7:5557"));
        assert!(is_followed(&remote, "tcp://[fd00::1]:5557"));
        assert!(!is_followed(&remote, "tcp://10.0.0.8:5557"));
        let local = target("http://127.0.0.1:8000", &[]);
        assert!(is_followed(&local, "tcp://localhost:5557"));
        assert!(is_followed(&local, "tcp://[::1]:5557"));
    }

    #[test]
    fn sockets_in_files_are_those_of_local_workers_unless_the_file_allows_them() {
        assert!(is_followed(
            &target("http://localhost:8000", &[]),
            "ipc:///run/kv"
        ));
        let mut remote = target("http://gpu-1:8000", &[]);
        assert!(!is_followed(&remote, "ipc:///run/kv"));
        remote.ipc = true;
        assert!(is_followed(&remote, "ipc:///run/kv"));
    }

    #[test]
    fn a_worker_has_as_many_feeds_as_ranks() {
        let at = |rank: u16| source(rank, "tcp://gpu-1:5557", None);
        let two = target("http://gpu-1:8000", &[0, 1]);
        let (followed, refused) = trusted_sources(&two, vec![at(0), at(0), at(1), at(2)]);
        let ranks = |sources: &[EventSource]| sources.iter().map(|source| source.rank).collect::<Vec<_>>();
        assert_eq!(ranks(&followed), [0, 1]);
        assert_eq!(
            refused.iter().map(|refused| refused.rank).collect::<Vec<_>>(),
            [0, 2]
        );
        let undeclared = target("http://gpu-1:8000", &[]);
        let (followed, refused) = trusted_sources(&undeclared, (0..200).map(at).collect());
        assert_eq!((followed.len(), refused.len()), (MOST_UNDECLARED, MOST_REFUSED));
    }

    #[test]
    fn the_address_at_which_a_worker_was_queried_is_its_own_host() {
        let own = at_own_host(
            source(0, "tcp://10.0.0.7:5557", Some("tcp://10.0.0.8:5558")),
            [10, 0, 0, 7].into(),
            "gpu-1",
        );
        assert_eq!(own.endpoint, "tcp://gpu-1:5557");
        assert_eq!(own.replay.as_deref(), Some("tcp://10.0.0.8:5558"));
        let ipc = at_own_host(source(0, "ipc:///run/kv", None), [10, 0, 0, 7].into(), "gpu-1");
        assert_eq!(ipc.endpoint, "ipc:///run/kv");
    }
}
