//! The limit of open files, as high as it may be.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises this process's limit as far as the system lets it, for the processes it starts too, and tells what it is now.
pub(crate) fn raise() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where that fails, what is in force stays.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
