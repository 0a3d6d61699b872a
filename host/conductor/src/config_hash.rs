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
        // Settings that must differ between routers of one machine are left out.
        let mut config = config.without_places();
        config.server.listen = SocketAddr::from(([0, 0, 0, 0], 0));
        config.server.admin_listen = None;
        if let Some(replicas) = &mut config.replicas {
            replicas.name = None;
        }
        // Workers that were added over HTTP have another order at a router that restarted.
        for pool in &mut config.pools {
            pool.workers.sort_by(|one, other| one.url.cmp(&other.url));
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

#[cfg(test)]
mod tests {
    use local_files::ConfigSource;

    use super::*;

    fn hash(text: &str) -> String {
        let hash = ConfigHash::default();
        let source = ConfigSource::Text(text.to_owned());
        hash.set(&crate::reload::read(&source, text).unwrap().config);
        hash.get()
    }

    #[test]
    fn the_order_of_workers_makes_no_difference() {
        let text = |first: &str, second: &str| {
            format!(
                "[[pools.main.workers]]\nname = \"{first}\"\nurl = \"http://{first}:1\"\n\
                 [[pools.main.workers]]\nname = \"{second}\"\nurl = \"http://{second}:1\"\n\
                 [[routes]]\npool = \"main\"\npolicy = \"round-robin\"\n"
            )
        };
        assert_eq!(hash(&text("a", "b")), hash(&text("b", "a")));
        assert_ne!(hash(&text("a", "b")), hash(&text("a", "c")));
    }

    #[test]
    fn layouts_and_own_addresses_make_no_difference_and_settings_do() {
        let text = |port: u16, name: &str, limit: u32| {
            format!(
                "[server]\nlisten = \"127.0.0.1:{port}\"\n[replicas]\nname = \"{name}\"\nservers = [\"nats://n:1\"]\n\
                 [pools.main]\nqueue-limit = {limit}\n[[pools.main.workers]]\nurl = \"http://a:1\"\n[[routes]]\npool = \"main\"\n\
                 policy = \"round-robin\"\n"
            )
        };
        let one = hash(&text(8080, "one", 5));
        assert_eq!(one, hash(&text(18_080, "another", 5)));
        assert_eq!(one, hash(&format!("# a comment\n\n{}", text(8080, "one", 5))));
        assert_ne!(one, hash(&text(8080, "one", 6)));
    }
}
