//! Limits of a pool's budget, recomputed from the workers in service.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use routing::{BudgetLimits, Role, Worker};

use super::spec::{AdmissionSpec, BudgetSpec};
use crate::fleet::worker::WorkerHandle;

/// Inputs of a pool's budget limits. The default has none.
#[derive(Debug)]
pub(crate) struct Capacity {
    /// Set if any budget is configured.
    is_any: bool,
    requests: BudgetSpec,
    tokens: BudgetSpec,
    tbt_target: Option<Duration>,
    /// Workers that answer clients.
    workers: Vec<(Arc<Worker>, Arc<WorkerHandle>)>,
    /// Number of routers by which the limits are divided.
    routers: NonZeroU32,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            is_any: false,
            requests: BudgetSpec::default(),
            tokens: BudgetSpec::default(),
            tbt_target: None,
            workers: Vec::new(),
            routers: NonZeroU32::MIN,
        }
    }
}

impl Capacity {
    /// Creates the capacity of a pool with these workers.
    pub(crate) fn new<'a>(
        spec: &AdmissionSpec,
        workers: impl Iterator<Item = (&'a Arc<Worker>, &'a Arc<WorkerHandle>)>,
    ) -> Self {
        let answering = workers.filter(|(worker, _)| worker.spec().role != Role::Prefill);
        Self {
            is_any: true,
            requests: spec.requests,
            tokens: spec.tokens,
            tbt_target: spec.tbt_target,
            workers: answering
                .map(|(worker, link)| (Arc::clone(worker), Arc::clone(link)))
                .collect(),
            routers: NonZeroU32::MIN,
        }
    }

    #[cfg(test)]
    pub(super) fn fixed(requests: Option<u64>, tokens: Option<u64>) -> Self {
        let budget = |limit: Option<u64>| limit.map_or(BudgetSpec::Off, BudgetSpec::Fixed);
        Self {
            is_any: true,
            requests: budget(requests),
            tokens: budget(tokens),
            ..Self::default()
        }
    }

    /// Replaces the inputs of the configuration.
    pub(super) fn replace(&mut self, next: Self) {
        let routers = self.routers;
        *self = Self { routers, ..next };
    }

    /// Divides the limits by so many routers. Returns `true` if that is another number.
    pub(super) fn divide(&mut self, routers: NonZeroU32) -> bool {
        std::mem::replace(&mut self.routers, routers) != routers
    }

    /// Returns `true` if any budget is configured.
    pub(super) fn is_any(&self) -> bool {
        self.is_any
    }

    /// Returns `true` if the limits change with the workers.
    pub(super) fn follows_workers(&self) -> bool {
        let follows = |budget: BudgetSpec| matches!(budget, BudgetSpec::Auto { .. });
        follows(self.requests) || follows(self.tokens)
    }

    /// Computes the current limits.
    pub(super) fn limits(&self) -> BudgetLimits {
        let requests = self.limit(self.requests, |worker, per_worker| {
            let bearable = self
                .tbt_target
                .and_then(|target| bearable(worker, target, per_worker?));
            bearable.or(per_worker)
        });
        let tokens = self.limit(self.tokens, |worker, per_worker| cache(worker).or(per_worker));
        let share = |limit: u64| (limit / u64::from(self.routers.get())).max(limit.min(1));
        BudgetLimits {
            requests: requests.map(share),
            tokens: tokens.map(share),
        }
    }

    fn limit(&self, budget: BudgetSpec, of: impl Fn(&Worker, Option<u64>) -> Option<u64>) -> Option<u64> {
        let per_worker = match budget {
            BudgetSpec::Off => return None,
            BudgetSpec::Fixed(limit) => return Some(limit),
            BudgetSpec::Auto { per_worker } => per_worker,
        };
        let in_service = self.workers.iter().filter(|(_, link)| !link.is_out());
        let some: Vec<_> = in_service.map(|(worker, _)| worker).collect();
        // If all workers are ejected, all are counted rather than none.
        let all = || self.workers.iter().map(|(worker, _)| worker).collect();
        let workers: Vec<_> = if some.is_empty() { all() } else { some };
        let sum: Option<u64> = workers.into_iter().map(|worker| of(worker, per_worker)).sum();
        // A pool without workers is refused elsewhere.
        sum.map(|sum| sum.max(1))
    }
}

/// Returns the tokens that a worker's cache holds, if the worker reported it.
fn cache(worker: &Worker) -> Option<u64> {
    let (report, _) = worker.load().engine()?;
    (report.kv_tokens >= 1.0).then_some(report.kv_tokens as u64)
}

/// Returns the maximum of decoding requests of a worker that meets the target time between tokens, by its cost model.
/// `None` while the model has no data.
fn bearable(worker: &Worker, target: Duration, most: u64) -> Option<u64> {
    let load = worker.load();
    let reading = load.read();
    let prompt = reading.prompt_tokens / u64::from(reading.requests).max(1);
    let target_ms = target.as_secs_f64() * 1e3;
    let costs = load.cost().read();
    let predicted = |requests: u32| costs.tbt_ms(requests, prompt.saturating_mul(requests.into()));
    if predicted(1).is_nan() {
        return None;
    }
    // Binary search: the time between tokens only grows with the requests.
    let (mut least, mut over) = (1, u32::try_from(most).unwrap_or(u32::MAX).saturating_add(1));
    while over - least > 1 {
        let middle = least.midpoint(over);
        if predicted(middle) <= target_ms {
            least = middle;
        } else {
            over = middle;
        }
    }
    Some(least.into())
}
