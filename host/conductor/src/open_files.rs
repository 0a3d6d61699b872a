//! How many files and connections the process may have open: all that the system grants, and a word where that is too few.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// Files besides clients and workers: listeners, feeds, logs.
const OTHERS: u64 = 128;

/// Raises the soft limit to the hard one. The limit then; none where there is none.
pub fn raise() -> Option<u64> {
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
                was = was.current,
                is = wanted.current,
                "raised the limit of open files"
            );
            wanted.current
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            warn!(error, "failed to raise the limit of open files");
            was.current
        }
    }
}

/// Says so where so many clients, each with a worker's connection, do not fit.
pub(crate) fn check(limit: Option<u64>, max_connections: u32) {
    let needed = 2 * u64::from(max_connections) + OTHERS;
    if let Some(limit) = limit.filter(|limit| *limit < needed) {
        warn!(
            limit,
            needed,
            key = "server.max-connections",
            "too few files may be open for so many clients: raise the hard limit (`ulimit -Hn`, LimitNOFILE=) or lower the key"
        );
    }
}
