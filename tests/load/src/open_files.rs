//! The limit of open files, as high as it may be.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit of this process and its children as far as the system allows. Returns the new limit.
pub(crate) fn raise() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // On failure the current limit stays.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
