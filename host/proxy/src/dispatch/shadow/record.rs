//! Results of shadow decisions: counters, and the last disagreements. The results contain no prompt, and no header but
//! the request's id.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use routing::FaultKind;

use super::metrics::{RESULTS, ShadowLabel, ShadowMetrics};

/// Decision of a shadow. Workers are rows of the captured state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Placed {
        answers: usize,
        prefills: Option<usize>,
    },
    Held,
    Rejected,
    Passed,
    Fault(FaultKind),
    /// The shadow's circuit is open.
    CircuitOpen,
}

/// Chosen worker, as it was known when the request was placed.
#[derive(Debug, Clone, PartialEq)]
pub struct Pick {
    /// Name of the worker.
    pub worker: Box<str>,
    /// Prompt tokens that the worker holds according to the index. `None` where that is unknown.
    pub matched: Option<u32>,
    /// Tokens that the worker would compute before the request's first token, including those of the request.
    pub ahead: u64,
    /// Predicted time to first token in milliseconds, from these and the worker's past. `None` while there is no
    /// prediction.
    pub ttft_ms: Option<f64>,
    /// Requests in flight there.
    pub requests: u32,
}

/// Request that a shadow would have sent elsewhere. Of a pair, the workers are those that compute the prompt where
/// these differ, else those that answer.
#[derive(Debug, Clone)]
pub struct Disagreement {
    /// The request's `x-request-id`.
    pub request: String,
    /// Time of the decision.
    pub at: SystemTime,
    /// The arm's choice.
    pub active: Pick,
    /// The shadow's choice.
    pub shadow: Pick,
}

/// Report of one shadow of a route.
#[derive(Debug, Clone)]
pub struct ShadowReport {
    /// The route's pool.
    pub pool: String,
    /// Conditions of the route.
    pub route: String,
    /// Name of the shadow in the configuration.
    pub policy: String,
    /// The active version.
    pub version: Arc<str>,
    /// Number of decisions by result, in a fixed order.
    pub results: Vec<(&'static str, u64)>,
    /// Requests that the shadow was not called for, since too many waited.
    pub dropped: u64,
    /// Where both chose: prompt tokens held by the shadow's workers, and by the active policy's.
    pub matched: [u64; 2],
    /// Where both chose: tokens to be computed before the first token at the shadow's workers, and at the active
    /// policy's.
    pub ahead: [u64; 2],
    /// Where both chose and a time to first token is predicted for both choices: the number of such cases and the mean
    /// times. The means are in milliseconds: at the shadow's workers, and at the active policy's.
    pub predicted: Option<(u64, [f64; 2])>,
    /// Mean seconds of a decision. `None` before the first.
    pub decision_seconds: Option<f64>,
    /// Last disagreements, oldest first.
    pub disagreements: Vec<Disagreement>,
}

/// Statistics of one shadow of one route. Kept over snapshots.
#[derive(Debug)]
pub(crate) struct ShadowRecord {
    pub(super) label: ShadowLabel,
    pub(super) metrics: ShadowMetrics,
    /// Decisions whose time is known, and the sum of those times in nanoseconds.
    pub(super) timed: AtomicU64,
    pub(super) nanos: AtomicU64,
    /// Used by the shadows' thread and by pages.
    disagreements: Mutex<VecDeque<Disagreement>>,
}

impl ShadowRecord {
    pub(super) fn new(metrics: ShadowMetrics, label: ShadowLabel) -> Self {
        Self {
            label,
            metrics,
            timed: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            disagreements: Mutex::default(),
        }
    }

    /// Counts a request that found no room.
    pub(super) fn dropped(&self) {
        self.metrics.dropped.inc();
    }

    pub(super) fn report(&self, version: &Arc<str>) -> ShadowReport {
        let metrics = &self.metrics;
        let predictions = metrics.predictions.get();
        let timed = self.timed.load(Ordering::Relaxed);
        let nanos = self.nanos.load(Ordering::Relaxed);
        ShadowReport {
            pool: self.label.pool.clone(),
            route: self.label.route.clone(),
            policy: self.label.policy.clone(),
            version: Arc::clone(version),
            results: RESULTS
                .map(|(result, label)| (label, metrics.decisions(result).get()))
                .to_vec(),
            dropped: metrics.dropped.get(),
            matched: [0, 1].map(|at: usize| metrics.matched[at].get()),
            ahead: [0, 1].map(|at: usize| metrics.ahead[at].get()),
            predicted: (predictions > 0).then(|| {
                let mean = |at: usize| 1e3 * metrics.predicted[at].get() / predictions as f64;
                (predictions, [0, 1].map(mean))
            }),
            decision_seconds: (timed > 0).then(|| nanos as f64 / 1e9 / timed as f64),
            disagreements: self.disagreements().iter().cloned().collect(),
        }
    }

    pub(super) fn disagreements(&self) -> MutexGuard<'_, VecDeque<Disagreement>> {
        self.disagreements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
