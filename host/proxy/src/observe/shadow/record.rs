//! Results of shadow decisions: counters, and the last disagreements. The results contain no prompt, and no header but
//! the request's id.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use routing::FaultKind;
use tracing::debug;

use super::Shadows;
use super::captured::Captured;
use super::metrics::{RESULTS, ResultKind, ShadowLabel, ShadowMetrics};
use crate::base::request_id::RequestId;

/// Disagreements that are kept.
const KEPT: usize = 32;

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
    metrics: ShadowMetrics,
    /// Decisions whose time is known, and the sum of those times in nanoseconds.
    timed: AtomicU64,
    nanos: AtomicU64,
    /// Used by the shadows' thread and by pages.
    disagreements: Mutex<VecDeque<Disagreement>>,
}

impl Shadows {
    /// Counts a request that found no room.
    pub(super) fn dropped(&self) {
        for shadow in &self.each {
            shadow.record.metrics.dropped.inc();
        }
    }
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

    pub(super) fn add(&self, captured: &Captured, answer: &Answer, took: Duration) -> ResultKind {
        let (policy, request) = (&*self.label.policy, RequestId(&captured.request.id));
        debug!(policy, %request, ?answer, "shadow decision");
        let result = match answer {
            Answer::Placed { answers, prefills } => self.placed(captured, *answers, *prefills),
            Answer::Held => ResultKind::Held,
            Answer::Rejected => ResultKind::Rejected,
            Answer::Passed => ResultKind::Passed,
            Answer::Fault(_) => ResultKind::Fault,
            Answer::CircuitOpen => ResultKind::CircuitOpen,
        };
        self.metrics.decisions(result).inc();
        if !took.is_zero() {
            self.metrics.time.observe(took.as_secs_f64());
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.nanos.fetch_add(nanos, Ordering::Relaxed);
            self.timed.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    fn placed(&self, captured: &Captured, answers: usize, prefills: Option<usize>) -> ResultKind {
        let Some((active_answers, active_prefills)) = captured.placed() else {
            return ResultKind::Differed;
        };
        // Where two workers share a request, the one that computes the prompt has the cache and the wait.
        let computes = [
            prefills.unwrap_or(answers),
            active_prefills.unwrap_or(active_answers),
        ];
        let picks = computes.map(|row| captured.pick(row));
        for (at, pick) in picks.iter().enumerate() {
            self.metrics.matched[at].inc_by(pick.matched.unwrap_or(0).into());
            self.metrics.ahead[at].inc_by(pick.ahead);
        }
        if let [Some(shadow), Some(active)] = [0, 1].map(|at: usize| picks[at].ttft_ms) {
            self.metrics.predictions.inc();
            self.metrics.predicted[0].inc_by(shadow / 1e3);
            self.metrics.predicted[1].inc_by(active / 1e3);
        }
        if (answers, prefills) == (active_answers, active_prefills) {
            return ResultKind::Agreed;
        }
        let [shadow, active] = if computes[0] == computes[1] {
            [answers, active_answers].map(|row| captured.pick(row))
        } else {
            picks
        };
        let mut kept = self.disagreements();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Disagreement {
            request: String::from_utf8_lossy(captured.request.id.as_bytes()).into_owned(),
            at: SystemTime::now(),
            active,
            shadow,
        });
        ResultKind::Differed
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

    fn disagreements(&self) -> MutexGuard<'_, VecDeque<Disagreement>> {
        self.disagreements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
