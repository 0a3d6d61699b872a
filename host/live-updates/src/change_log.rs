//! Change log: the latest changes of the router for pages, log lines and a counter.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use admin_views::{Change, ChangeKind, ChangeResult, ChangeRing, NewChange};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tracing::{info, warn};

/// Log of changes. A clone is another handle to the same log.
#[derive(Debug, Clone, Default)]
pub struct ChangeLog {
    ring: Arc<Mutex<ChangeRing>>,
    counts: Family<KindLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

impl ChangeLog {
    /// Creates an empty log, and registers its counter with every kind.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let log = Self::default();
        registry.register(
            "conductor_changes",
            "Changes of configuration, policies and fleet, by kind",
            log.counts.clone(),
        );
        for kind in ChangeKind::ALL {
            let label = KindLabel { kind: kind.as_str() };
            drop(log.counts.get_or_create(&label));
        }
        log
    }

    /// Notes a change, counts it and logs it.
    pub fn note(&self, new: NewChange) {
        let label = KindLabel {
            kind: new.kind.as_str(),
        };
        self.counts.get_or_create(&label).inc();
        let change = self.ring().add(unix_seconds(), new).clone();
        let id = change.id;
        let NewChange {
            generation,
            kind,
            cause,
            by,
            summary,
            result,
            problems,
        } = change.noted;
        let (kind, cause) = (kind.as_str(), cause.as_str());
        match result {
            ChangeResult::Applied => {
                info!(target: "conductor::changes", id, generation, kind, cause, by, "{summary}");
            }
            ChangeResult::Refused => {
                warn!(target: "conductor::changes", id, generation, kind, cause, by, problems, "{summary}");
            }
        }
    }

    /// Returns the newest changes, newest first.
    #[must_use]
    pub fn latest(&self, limit: usize) -> Vec<Change> {
        self.ring().latest(limit)
    }

    /// Returns the changes after a number, oldest first.
    #[must_use]
    pub fn since(&self, id: u64) -> Vec<Change> {
        self.ring().since(id)
    }

    fn ring(&self) -> MutexGuard<'_, ChangeRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the seconds since 1970, to the millisecond.
#[must_use]
pub fn unix_seconds() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_millis() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use admin_views::ChangeCause;

    use super::*;

    #[test]
    fn every_kind_is_counted_from_0() {
        let mut registry = Registry::default();
        let log = ChangeLog::register(&mut registry);
        log.note(NewChange::applied(
            ChangeKind::WorkerEjected,
            ChangeCause::Health,
            "x",
        ));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        for kind in ChangeKind::ALL {
            let count = u8::from(*kind == ChangeKind::WorkerEjected);
            let line = format!("conductor_changes_total{{kind=\"{}\"}} {count}", kind.as_str());
            assert!(page.contains(&line), "{line}: {page}");
        }
    }
}
