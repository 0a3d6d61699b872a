//! Sampling: which requests are traced from their arrival, and which are exported at their end all the same.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::context::{TraceId, TraceParent};

/// Number of values of a trace id's random bits.
const VALUES: u64 = 1 << 56;
/// Time in which a budget is spent.
const WINDOW: Duration = Duration::from_secs(1);

/// Rule by which requests are sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingRule {
    /// Least random bits of a sampled trace id.
    threshold: u64,
    /// Time to the first token above which a request is exported in any case.
    pub slow: Option<Duration>,
}

/// Rate limiter of sampling that clients force: a budget of requests for each second.
#[derive(Debug)]
pub struct ForcedBudget {
    per_second: u32,
    window: Mutex<BudgetWindow>,
}

#[derive(Debug, Default)]
struct BudgetWindow {
    since: Option<Instant>,
    spent: u32,
}

impl SamplingRule {
    /// Makes a rule that samples a share of the traces, from 0 to 1.
    #[must_use]
    pub fn new(share: f64, slow: Option<Duration>) -> Self {
        let sampled = (share.clamp(0.0, 1.0) * VALUES as f64) as u64;
        Self {
            threshold: VALUES - sampled,
            slow,
        }
    }

    /// Returns whether a trace is sampled by its id. Every sampler with this share decides the same.
    #[must_use]
    pub fn samples(&self, trace: TraceId) -> bool {
        trace.randomness() >= self.threshold
    }

    /// Decides at a request's arrival. A parent's decision is followed, while the budget lasts. `is_forced`: the client
    /// requests an explanation.
    #[must_use]
    pub fn decide(
        &self,
        trace: TraceId,
        parent: Option<TraceParent>,
        is_forced: bool,
        budget: impl FnOnce() -> bool,
    ) -> bool {
        let is_requested = is_forced || parent.is_some_and(|parent| parent.is_sampled);
        if is_requested && budget() {
            return true;
        }
        // A parent that is not sampled has decided for the whole trace.
        let may_draw = parent.is_none_or(|parent| parent.is_sampled);
        may_draw && self.samples(trace)
    }
}

impl ForcedBudget {
    /// Makes a budget.
    #[must_use]
    pub fn new(per_second: u32) -> Self {
        Self {
            per_second,
            window: Mutex::default(),
        }
    }

    /// Takes one request from the budget. Returns `false` if it is spent.
    pub fn take(&self, now: Instant) -> bool {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = window
            .since
            .is_some_and(|since| now.saturating_duration_since(since) < WINDOW);
        if !is_current {
            *window = BudgetWindow {
                since: Some(now),
                spent: 0,
            };
        }
        let is_left = window.spent < self.per_second;
        window.spent += u32::from(is_left);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SpanId;
    use crate::ids::IdSource;

    fn parent(is_sampled: bool) -> TraceParent {
        TraceParent {
            trace: TraceId::new([1; 16]).unwrap(),
            span: SpanId::new([1; 8]).unwrap(),
            is_sampled,
        }
    }

    #[test]
    fn the_share_of_sampled_traces_is_the_configured_one() {
        let source = IdSource::new([3, 4]);
        for share in [0.0, 0.01, 0.5, 1.0] {
            let rule = SamplingRule::new(share, None);
            let sampled = (0..20_000).filter(|seq| rule.samples(source.trace(*seq)));
            let found = sampled.count() as f64 / 20_000.0;
            assert!((found - share).abs() < 0.01, "{share}: {found}");
        }
    }

    #[test]
    fn a_trace_sampled_at_a_small_share_is_sampled_at_each_larger_one() {
        let source = IdSource::new([3, 4]);
        let (few, many) = (SamplingRule::new(0.05, None), SamplingRule::new(0.2, None));
        let sampled: Vec<_> = (0..10_000)
            .filter(|seq| few.samples(source.trace(*seq)))
            .collect();
        assert!(sampled.iter().all(|seq| many.samples(source.trace(*seq))));
    }

    #[test]
    fn a_parents_decision_is_followed_while_the_budget_lasts() {
        let (none, all) = (SamplingRule::new(0.0, None), SamplingRule::new(1.0, None));
        let trace = TraceId::new([1; 16]).unwrap();
        assert!(none.decide(trace, Some(parent(true)), false, || true));
        assert!(!none.decide(trace, Some(parent(true)), false, || false));
        assert!(all.decide(trace, Some(parent(true)), false, || false));
        assert!(!all.decide(trace, Some(parent(false)), false, || unreachable!(
            "there is no wish"
        )));
        assert!(none.decide(trace, Some(parent(false)), true, || true));
        assert!(none.decide(trace, None, true, || true));
        assert!(!none.decide(trace, None, true, || false));
    }

    #[test]
    fn a_budget_is_renewed_each_second() {
        let (budget, start) = (ForcedBudget::new(2), Instant::now());
        let takes = |after: u64| budget.take(start + Duration::from_millis(after));
        assert!(takes(0) && takes(10));
        assert!(!takes(20) && !takes(999));
        assert!(takes(1_000) && takes(1_500) && !takes(1_600));
        assert!(!ForcedBudget::new(0).take(start));
    }
}
