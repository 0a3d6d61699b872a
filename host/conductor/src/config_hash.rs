//! Hash of the active configuration, by which routers see that theirs differ.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conductor_config::Config;

/// Hash of the active configuration, which a commit replaces.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfigHash(Arc<AtomicU64>);

impl ConfigHash {
    /// Records the active configuration.
    pub(crate) fn set(&self, config: &Config) {
        // What must differ between routers of one machine is left out.
        let mut config = config.clone();
        config.server.listen = SocketAddr::from(([0, 0, 0, 0], 0));
        config.server.admin_listen = None;
        if let Some(replicas) = &mut config.replicas {
            replicas.name = None;
        }
        let mut hasher = DefaultHasher::new();
        format!("{config:?}").hash(&mut hasher);
        self.0.store(hasher.finish(), Ordering::Relaxed);
    }

    /// Returns the hash as text.
    pub(crate) fn get(&self) -> String {
        format!("{:016x}", self.0.load(Ordering::Relaxed))
    }
}
