//! Results of shadow decisions: counters, and the last disagreements. The results contain no prompt, and no header but
//! the request's id.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use routing::FaultKind;

use super::metrics::{RESULTS, ShadowLabel, ShadowMetrics};

/// Decision of a shadow. Workers are rows of the captured state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShadowVerdict {
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

/// Report of one shadow of a route, since its active version.
#[derive(Debug, Clone)]
pub struct ShadowReport {
    /// The route's number in the configuration, from 1.
    pub number: usize,
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

/// Results of one shadow of one route since its active version, unlike those of the metrics. Kept over snapshots with
/// the same version.
#[derive(Debug)]
pub(crate) struct ShadowRecord {
    pub(super) label: ShadowLabel,
    pub(super) metrics: ShadowMetrics,
    dropped: AtomicU64,
    /// Used by the shadows' thread and by pages.
    sums: Mutex<ShadowSums>,
}

/// Sums over the decisions of a shadow.
#[derive(Debug, Default)]
pub(super) struct ShadowSums {
    /// Decisions by result.
    pub(super) decisions: [u64; RESULTS.len()],
    /// Tokens matched by the shadow's and by the active policy's choice.
    pub(super) matched: [u64; 2],
    /// Tokens to be computed, in the same order.
    pub(super) ahead: [u64; 2],
    /// Decisions with a predicted time for both choices.
    pub(super) predictions: u64,
    /// Predicted times in milliseconds, in the same order.
    pub(super) predicted: [f64; 2],
    /// Decisions whose time is known.
    pub(super) timed: u64,
    /// Sum of those times.
    pub(super) time: Duration,
    /// Last disagreements, oldest first.
    pub(super) disagreements: VecDeque<Disagreement>,
}

impl ShadowRecord {
    pub(super) fn new(metrics: ShadowMetrics, label: ShadowLabel) -> Self {
        Self {
            label,
            metrics,
            dropped: AtomicU64::new(0),
            sums: Mutex::default(),
        }
    }

    /// Counts a request that found no room.
    pub(super) fn dropped(&self) {
        self.metrics.dropped.inc();
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn report(&self, number: usize, version: &Arc<str>) -> ShadowReport {
        let sums = self.sums();
        ShadowReport {
            number,
            pool: self.label.pool.clone(),
            route: self.label.route.clone(),
            policy: self.label.policy.clone(),
            version: Arc::clone(version),
            results: RESULTS
                .map(|(result, label)| (label, sums.decisions[result as usize]))
                .to_vec(),
            dropped: self.dropped.load(Ordering::Relaxed),
            matched: sums.matched,
            ahead: sums.ahead,
            predicted: (sums.predictions > 0).then(|| {
                let mean = |sum: f64| sum / sums.predictions as f64;
                (sums.predictions, sums.predicted.map(mean))
            }),
            decision_seconds: (sums.timed > 0).then(|| sums.time.as_secs_f64() / sums.timed as f64),
            disagreements: sums.disagreements.iter().cloned().collect(),
        }
    }

    /// Locks the sums, for microseconds per decision or report.
    pub(super) fn sums(&self) -> MutexGuard<'_, ShadowSums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
