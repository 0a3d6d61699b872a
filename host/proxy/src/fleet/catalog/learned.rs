//! Model list of one worker, kept from snapshot to snapshot.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inference_api::ModelNames;

/// Shortest time between two queries to a worker that requests cause, in milliseconds.
const NEWS_PAUSE_MS: u64 = 1_000;

/// The models that a worker listed last.
#[derive(Debug, Default)]
pub(crate) struct LearnedModels {
    /// Number of lists that differed from the one before.
    version: AtomicU64,
    /// Number of queries.
    queries: AtomicU64,
    /// Time from which a request may cause the next query, on the clock of the worker's link.
    news_from_ms: AtomicU64,
    /// Last known list. The lock is held for a comparison of lists, and never across an await.
    known: Mutex<KnownModels>,
}

#[derive(Debug, Default)]
struct KnownModels {
    names: Option<Arc<ModelNames>>,
    learned_ms: u64,
    /// Number of the last query that was answered.
    answered: u64,
    /// Reason why the last query returned no list.
    failure: Option<Arc<str>>,
}

/// Model list of a worker, for `/status`.
#[derive(Debug, Clone)]
pub struct ModelsReport {
    /// Each name with the base model that it adapts, `None` for a base model. `None` while no list was learned.
    pub names: Option<Arc<ModelNames>>,
    /// Milliseconds since the list was learned.
    pub age_ms: u64,
    /// Reason why the worker's last answer had no list. `None` where it had one.
    pub failure: Option<Arc<str>>,
}

impl LearnedModels {
    /// Begins a query. Its number goes with the answer, so that an older answer does not replace a newer one.
    pub(super) fn begin(&self) -> u64 {
        self.queries.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Stores the list that the query got. Returns `true` if it differs from the one before.
    pub(super) fn learn(&self, query: u64, names: &Arc<ModelNames>, now_ms: u64) -> bool {
        let mut known = self.known();
        if query < known.answered {
            return false;
        }
        known.answered = query;
        known.failure = None;
        known.learned_ms = now_ms;
        let differs = known.names.as_ref() != Some(names);
        if differs {
            known.names = Some(Arc::clone(names));
            self.version.fetch_add(1, Ordering::Release);
        }
        differs
    }

    /// Stores the reason why the query got no list. The list before it stays.
    pub(super) fn failed(&self, query: u64, failure: &Arc<str>) {
        let mut known = self.known();
        if query >= known.answered {
            known.answered = query;
            known.failure = Some(Arc::clone(failure));
        }
    }

    /// Returns `true` if a request may cause a query now. The next query may follow after a pause.
    pub(super) fn may_query(&self, now_ms: u64) -> bool {
        let from = self.news_from_ms.load(Ordering::Relaxed);
        let next = now_ms + NEWS_PAUSE_MS;
        now_ms >= from
            && self
                .news_from_ms
                .compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Returns the list. `None` while none was learned.
    pub(super) fn names(&self) -> Option<Arc<ModelNames>> {
        self.known().names.clone()
    }

    /// Returns the version of the list, which changes with it.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the list as `/status` shows it.
    pub(crate) fn report(&self, now_ms: u64) -> ModelsReport {
        let known = self.known();
        ModelsReport {
            names: known.names.clone(),
            age_ms: now_ms.saturating_sub(known.learned_ms),
            failure: known.failure.clone(),
        }
    }

    fn known(&self) -> MutexGuard<'_, KnownModels> {
        // Each change leaves whole values, whatever a panic elsewhere did.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Arc<ModelNames> {
        Arc::new(all.iter().map(|&name| (name.into(), None)).collect())
    }

    #[test]
    fn an_older_answer_does_not_replace_a_newer_one() {
        let learned = LearnedModels::default();
        let (old, new) = (learned.begin(), learned.begin());
        assert!(learned.learn(new, &names(&["b"]), 5));
        assert!(!learned.learn(old, &names(&["a"]), 6));
        learned.failed(old, &"late".into());
        let report = learned.report(7);
        assert_eq!(
            (report.names, report.age_ms, report.failure),
            (Some(names(&["b"])), 2, None)
        );
    }

    #[test]
    fn a_failure_leaves_the_list_with_its_age() {
        let learned = LearnedModels::default();
        learned.learn(learned.begin(), &names(&["a"]), 0);
        let version = learned.version();
        learned.failed(learned.begin(), &"gone".into());
        let report = learned.report(9);
        assert_eq!((report.names, report.age_ms), (Some(names(&["a"])), 9));
        assert_eq!(report.failure.as_deref(), Some("gone"));
        assert!(!learned.learn(learned.begin(), &names(&["a"]), 10));
        assert_eq!(learned.version(), version);
        assert_eq!(learned.report(10).failure, None);
    }

    #[test]
    fn requests_cause_one_query_a_second() {
        let learned = LearnedModels::default();
        assert!(learned.may_query(10));
        assert!(!learned.may_query(1_009));
        assert!(learned.may_query(1_010));
    }
}
