//! Limit of open files: raised to the system's maximum, with a warning if it is too low.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// Files other than of clients and workers: listeners, feeds, logs, and clients that wait for a place.
const OTHERS: u64 = 192;
/// Target of the log lines.
const LOG_TARGET: &str = "conductor::open_files";

/// Raises the soft limit to the hard one. Returns the new limit, or `None` without a limit.
pub fn raise_open_files() -> Option<u64> {
    let was = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: was.maximum,
        maximum: was.maximum,
    };
    if was.current == was.maximum {
        return was.current;
    }
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => {
            info!(
                target: LOG_TARGET,
                was = was.current,
                is = wanted.current,
                "raised the limit of open files"
            );
            wanted.current
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            warn!(target: LOG_TARGET, error, "failed to raise the limit of open files");
            was.current
        }
    }
}

/// Returns the number of clients that fit below a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// All of them, each with a worker's connection.
    Enough,
    /// All of them, but not while each has a request at a worker. Most seldom have.
    Scarce,
    /// The limit is too low even for the clients alone.
    TooLittle,
}

impl Room {
    fn of(limit: Option<u64>, max_connections: u32) -> Self {
        let clients = u64::from(max_connections);
        match limit {
            Some(limit) if limit < clients + OTHERS => Self::TooLittle,
            Some(limit) if limit < 2 * clients + OTHERS => Self::Scarce,
            _ => Self::Enough,
        }
    }
}

/// Logs a warning if the limit is too low for this number of clients.
pub fn check_open_files(limit: Option<u64>, max_connections: u32) {
    const KEY: &str = "server.max-connections";
    match Room::of(limit, max_connections) {
        Room::Enough => {}
        Room::Scarce => info!(
            target: LOG_TARGET,
            limit,
            key = KEY,
            "the limit of open files is enough for `max-connections` clients, but not if each also has a connection to a worker: raise the hard limit (`ulimit -Hn`, LimitNOFILE=) or lower the key"
        ),
        Room::TooLittle => warn!(
            target: LOG_TARGET,
            limit,
            key = KEY,
            "too few files may be open for so many clients: raise the hard limit (`ulimit -Hn`, LimitNOFILE=) or lower the key"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_is_what_does_not_hold_the_clients_alone() {
        let room = |limit| Room::of(limit, 10_000);
        assert_eq!(room(None), Room::Enough);
        assert_eq!(room(Some(20_192)), Room::Enough);
        assert_eq!(room(Some(20_000)), Room::Scarce);
        assert_eq!(room(Some(10_192)), Room::Scarce);
        assert_eq!(room(Some(10_191)), Room::TooLittle);
    }
}
