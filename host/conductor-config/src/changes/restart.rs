//! Keys that are read only at start.

use super::unmarked::unmarked;
use crate::{Config, IndexerConfig};

/// Returns the keys that differ from those of the start, and need a restart to apply.
#[must_use]
pub fn restart_keys(at_start: &Config, now: &Config) -> Vec<String> {
    let (at_start, now) = (&unmarked(at_start), &unmarked(now));
    let (was, is) = (&at_start.server, &now.server);
    let changed = [
        // A running listener can move to another address.
        (
            "server.admin-listen",
            was.admin_listen.is_some() != is.admin_listen.is_some(),
        ),
        (
            "server.max-connections",
            was.max_connections != is.max_connections,
        ),
        ("server.drain-delay", was.drain_delay != is.drain_delay),
        ("server.drain-timeout", was.drain_timeout != is.drain_timeout),
        ("server.policy-state", was.policy_state != is.policy_state),
        ("log.format", at_start.log.format != now.log.format),
        ("metrics.buckets", at_start.metrics != now.metrics),
        ("indexer", is_other_service(&at_start.indexer, &now.indexer)),
        (
            "index.max-blocks",
            at_start.index.max_blocks != now.index.max_blocks,
        ),
        (
            "index.fill-within",
            at_start.index.fill_within != now.index.fill_within,
        ),
        ("kv-events", at_start.kv_events != now.kv_events),
        ("replicas", at_start.replicas != now.replicas),
        ("policy-cache", at_start.policy_cache != now.policy_cache),
        ("policy-compile", at_start.policy_compile != now.policy_compile),
    ];
    let keys = changed.iter().filter(|(_, changed)| *changed);
    keys.map(|(key, _)| (*key).to_owned()).collect()
}

/// Returns true if the indexer needs a restart. Its key and certificates are replaced while it runs.
fn is_other_service(was: &IndexerConfig, is: &IndexerConfig) -> bool {
    let IndexerConfig {
        listen,
        listen_at: _,
        api_key: _,
        tls: _,
        body_limit,
        services,
    } = is;
    (was.listen, was.body_limit) != (*listen, *body_limit) || was.services != *services
}
