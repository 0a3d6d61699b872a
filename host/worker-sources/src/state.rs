//! State of a source: its accepted workers, its last error, and its counters.
//!
//! Its task writes it, reloads and pages read it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use observability::error_chain;
use tracing::{info, warn};
use worker_discovery::{AcceptedWorkers, Decoded, DiscoveredWorker};

use crate::error::SourceError;
use crate::report::{BadEntries, SourceReport, SourceStatus};
use crate::spec::SourceSpec;

/// Function that is called when the accepted workers of a source change.
pub(crate) type ChangeCallback = Arc<dyn Fn() + Send + Sync>;

/// Shared state of a source.
pub(crate) struct SourceState {
    inner: Mutex<SourceMemory>,
    on_change: Mutex<ChangeCallback>,
}

/// State behind the lock.
#[derive(Clone)]
struct SourceMemory {
    spec: SourceSpec,
    accepted: AcceptedWorkers,
    /// The accepted workers, shared with the reload thread.
    workers: Arc<[DiscoveredWorker]>,
    status: SourceStatus,
    error: Option<String>,
    bad_entries: BadEntries,
    last_success: Option<SystemTime>,
    counts: QueryCounts,
}

/// Numbers of queries by their result.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueryCounts {
    /// Answers that were accepted in full.
    pub(crate) good: u64,
    /// Answers that missed half of the workers or more.
    pub(crate) doubted: u64,
    /// Queries without a usable answer.
    pub(crate) failed: u64,
}

impl SourceState {
    pub(crate) fn new(spec: SourceSpec, on_change: ChangeCallback) -> Self {
        Self {
            inner: Mutex::new(SourceMemory {
                accepted: AcceptedWorkers::new(spec.confirm),
                workers: Arc::from([]),
                status: SourceStatus::Waiting,
                error: None,
                bad_entries: BadEntries::default(),
                last_success: None,
                counts: QueryCounts::default(),
                spec,
            }),
            on_change: Mutex::new(on_change),
        }
    }

    /// Returns the state of a changed specification. The accepted workers stay until the next answer; of another place,
    /// that answer is accepted in full. The task of the old specification may still record an answer: it goes to the
    /// old state, which is not used any more.
    pub(crate) fn respecified(&self, spec: SourceSpec, on_change: ChangeCallback) -> Self {
        let mut inner = self.lock().clone();
        let scheme = |spec: &SourceSpec| spec.defaults.scheme;
        if !inner.spec.kind.is_same_place(&spec.kind) || scheme(&inner.spec) != scheme(&spec) {
            inner.accepted.accept_next();
        }
        inner.accepted.set_confirm(spec.confirm);
        inner.spec = spec;
        Self {
            inner: Mutex::new(inner),
            on_change: Mutex::new(on_change),
        }
    }

    pub(crate) fn set_on_change(&self, on_change: ChangeCallback) {
        *self.on_change.lock().unwrap_or_else(PoisonError::into_inner) = on_change;
    }

    /// Returns the accepted workers.
    pub(crate) fn workers(&self) -> Arc<[DiscoveredWorker]> {
        Arc::clone(&self.lock().workers)
    }

    /// Returns the number of doubted workers.
    pub(crate) fn doubted(&self) -> usize {
        self.lock().accepted.unconfirmed()
    }

    /// Takes the result of a query.
    pub(crate) fn record(&self, result: Result<Decoded, SourceError>) {
        match result {
            Ok(decoded) => self.record_answer(decoded),
            Err(error) => self.record_error(&error),
        }
    }

    /// Notes that the answer of a watch is still current.
    pub(crate) fn is_alive(&self) {
        let mut inner = self.lock();
        if inner.status == SourceStatus::Current {
            inner.last_success = Some(SystemTime::now());
        }
    }

    fn record_answer(&self, decoded: Decoded) {
        let mut inner = self.lock();
        inner.recover();
        inner.last_success = Some(SystemTime::now());
        inner.note_bad_entries(&decoded);
        let was_doubted = inner.accepted.unconfirmed();
        let change = inner.accepted.record(decoded.workers);
        match change.unconfirmed {
            0 => inner.counts.good += 1,
            _ => inner.counts.doubted += 1,
        }
        if change.unconfirmed > 0 && was_doubted == 0 {
            let (source, doubted) = (&*inner.spec.name, change.unconfirmed);
            let believed = inner.accepted.workers().map_or(0, <[_]>::len);
            warn!(
                source,
                doubted,
                believed,
                confirm = inner.spec.confirm,
                "an answer misses half of the source's workers or more: they stay until `confirm` answers in a row \
                 miss them"
            );
        }
        if change.is_changed {
            inner.workers = Arc::from(inner.accepted.workers().unwrap_or_default());
        }
        drop(inner);
        if change.is_changed {
            let on_change = Arc::clone(&self.on_change.lock().unwrap_or_else(PoisonError::into_inner));
            on_change();
        }
    }

    fn record_error(&self, error: &SourceError) {
        let mut inner = self.lock();
        inner.counts.failed += 1;
        let error = error_chain(error);
        if inner.error.as_ref() != Some(&error) {
            let workers = inner.workers.len();
            warn!(
                source = &*inner.spec.name,
                error, workers, "failed to query a source of workers: its last workers stay"
            );
        }
        inner.status = SourceStatus::Failing;
        inner.error = Some(error);
    }

    pub(crate) fn report(&self) -> SourceReport {
        let inner = self.lock();
        SourceReport {
            source: inner.spec.name.clone(),
            pool: inner.spec.pool.clone(),
            kind: inner.spec.kind.as_str(),
            place: inner.spec.kind.place(),
            state: inner.status,
            workers: inner.workers.len(),
            doubted: inner.accepted.unconfirmed(),
            last_success: inner.last_success.map(unix_seconds),
            error: inner.error.clone(),
            bad_entries: inner.bad_entries.clone(),
        }
    }

    pub(crate) fn counts(&self) -> QueryCounts {
        self.lock().counts
    }

    fn lock(&self) -> MutexGuard<'_, SourceMemory> {
        // Each field is written whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SourceMemory {
    fn recover(&mut self) {
        if self.status == SourceStatus::Failing {
            info!(source = &*self.spec.name, "a source of workers answers again");
        }
        self.status = SourceStatus::Current;
        self.error = None;
    }

    fn note_bad_entries(&mut self, decoded: &Decoded) {
        let bad = BadEntries {
            count: decoded.fault_count,
            first: decoded.faults.clone(),
        };
        if bad == self.bad_entries {
            return;
        }
        for fault in &bad.first {
            let is_new = !self.bad_entries.first.contains(fault);
            if is_new {
                warn!(
                    source = &*self.spec.name,
                    entry = fault.entry,
                    why = fault.why,
                    "an entry of a source of workers is left out"
                );
            }
        }
        self.bad_entries = bad;
    }
}

fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
