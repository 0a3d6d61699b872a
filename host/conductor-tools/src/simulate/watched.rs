//! Watchdog of a simulated policy: slow decisions, or endless queueing of requests, would keep a run from ending.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use routing::{
    DecisionInput, EventListener, FaultKind, FeaturePlan, Policy, PolicyDescription, PolicyFault, Verdict,
};

/// Decisions for each request, in the mean, after which a policy is taken to hold requests without end.
const MOST_CALLS: u64 = 1_000;

/// A policy, and whether it was given up; the fallback then decides, so that the run ends soon.
#[derive(Debug)]
pub(super) struct Watched {
    policy: Arc<dyn Policy>,
    requests: u64,
    calls_left: AtomicU64,
    timed_out: AtomicBool,
}

impl Watched {
    pub(super) fn new(policy: Arc<dyn Policy>, requests: usize) -> Self {
        Self {
            policy,
            requests: requests as u64,
            calls_left: AtomicU64::new(requests as u64 * MOST_CALLS),
            timed_out: AtomicBool::new(false),
        }
    }

    /// Estimates the finished share of a run from the number of calls; queued requests cause several calls.
    pub(super) fn done(&self) -> f64 {
        let calls = self.requests * MOST_CALLS - self.calls_left.load(Ordering::Relaxed);
        (calls as f64 / self.requests as f64).min(1.0)
    }

    /// Returns the reason for hiding its figures, if any.
    pub(super) fn given_up(&self) -> Option<String> {
        if self.timed_out.load(Ordering::Relaxed) {
            return Some("a decision took more than a second; see `conductor policy check`".to_owned());
        }
        let is_over = self.calls_left.load(Ordering::Relaxed) == 0;
        is_over
            .then(|| format!("it was called {MOST_CALLS} times for each request: it holds them without end"))
    }
}

impl PolicyDescription for Watched {
    fn name(&self) -> &str {
        self.policy.name()
    }

    fn plan(&self) -> &FeaturePlan {
        self.policy.plan()
    }
}

impl Policy for Watched {
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        if self.given_up().is_some() {
            return Ok(Verdict::Pass);
        }
        self.calls_left.fetch_sub(1, Ordering::Relaxed);
        let verdict = self.policy.decide(input);
        if let Err(fault) = &verdict
            && fault.kind == FaultKind::Deadline
        {
            self.timed_out.store(true, Ordering::Relaxed);
        }
        verdict
    }

    fn listeners(&self) -> Vec<Arc<dyn EventListener>> {
        self.policy.listeners()
    }
}
