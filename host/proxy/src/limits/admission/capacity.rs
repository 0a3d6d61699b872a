//! Limits of a pool's budget, recomputed from the workers in service.
//!
//! A permit is held until its answer ends, also on a worker that gets no new requests any more. Such a worker therefore
//! counts with the requests that it still has. Otherwise those would use the capacity of the others.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use routing::{BudgetLimits, BudgetUse, Role, Worker, WorkerId};

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
    /// Workers that have left the fleet, while they have requests.
    leaving: Vec<Arc<Worker>>,
    /// Limits by the workers in service, at the last computation.
    in_service: BudgetLimits,
    /// Workers out of service that have requests.
    others: Vec<OtherWorker>,
    /// Number of routers by which the limits are divided.
    routers: NonZeroU32,
}

/// Worker out of service that has requests.
#[derive(Debug)]
struct OtherWorker {
    worker: Arc<Worker>,
    /// Capacity at the last computation.
    most: BudgetLimits,
    /// Set if the requests of other routers count, because those routers report their use of the budget and their load.
    is_shared: bool,
}

impl OtherWorker {
    /// Returns the requests that it has now.
    fn running(&self) -> u64 {
        let load = self.worker.load();
        let requests = if self.is_shared {
            load.read().requests
        } else {
            load.own().requests
        };
        requests.into()
    }
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            is_any: false,
            requests: BudgetSpec::default(),
            tokens: BudgetSpec::default(),
            tbt_target: None,
            workers: Vec::new(),
            leaving: Vec::new(),
            in_service: BudgetLimits::default(),
            others: Vec::new(),
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
            ..Self::default()
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

    /// Replaces the inputs of the configuration. Workers that left the fleet, which drain by then, are
    /// kept in `leaving`.
    pub(super) fn replace(&mut self, next: Self) {
        let stay: HashSet<WorkerId> = next.workers.iter().map(|(worker, _)| worker.id()).collect();
        let before = std::mem::take(&mut self.workers).into_iter();
        let gone = before.filter_map(|(worker, link)| link.health.is_draining().then_some(worker));
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.extend(gone);
        leaving.retain(|worker| !stay.contains(&worker.id()));
        *self = Self {
            routers: self.routers,
            leaving,
            ..next
        };
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

    /// Computes the current limits. `used` is the use of the budget by this router.
    pub(super) fn limits(&mut self, used: BudgetUse) -> BudgetLimits {
        self.leaving.retain(|worker| worker.load().own().requests > 0);
        let serves = |link: &WorkerHandle| !link.health.is_draining() && !link.is_out();
        // If no worker is in service, all are counted rather than none.
        let counts_all = !self.workers.iter().any(|(_, link)| serves(link));
        let is_shared = self.routers == NonZeroU32::MIN;
        let other = |worker: &Arc<Worker>, is_shared| OtherWorker {
            worker: Arc::clone(worker),
            most: BudgetLimits {
                requests: self.most_requests(worker),
                tokens: self.most_tokens(worker),
            },
            is_shared,
        };
        let mut serving = Vec::new();
        let mut others: Vec<_> = self.leaving.iter().map(|worker| other(worker, false)).collect();
        for (worker, link) in &self.workers {
            if counts_all || serves(link) {
                serving.push(&**worker);
            } else {
                others.push(other(worker, is_shared));
            }
        }
        others.retain(|other| other.running() > 0);
        self.in_service = BudgetLimits {
            requests: self.limit(self.requests, &serving, Self::most_requests),
            tokens: self.limit(self.tokens, &serving, Self::most_tokens),
        };
        self.others = others;
        self.with_running(used)
    }

    /// Returns `true` if the limits fall with each request that ends at a worker out of service. Fixed limits never do.
    pub(super) fn has_others(&self) -> bool {
        self.follows_workers() && !self.others.is_empty()
    }

    /// Returns the last computed limits with the requests that run at workers out of service now.
    pub(super) fn with_running(&self, used: BudgetUse) -> BudgetLimits {
        let mean_tokens = used.tokens / used.requests.max(1);
        let (mut requests, mut tokens) = (0_u64, 0_u64);
        let bounded = |running: u64, most: Option<u64>| most.map_or(running, |most| running.min(most));
        for other in &self.others {
            let running = other.running();
            let running_tokens = running.saturating_mul(mean_tokens);
            requests = requests.saturating_add(bounded(running, other.most.requests));
            tokens = tokens.saturating_add(bounded(running_tokens, other.most.tokens));
        }
        let more = |budget: BudgetSpec, limit: Option<u64>, running: u64| match budget {
            BudgetSpec::Auto { .. } => limit.map(|limit| limit.saturating_add(running)),
            BudgetSpec::Off | BudgetSpec::Fixed(_) => limit,
        };
        BudgetLimits {
            requests: more(self.requests, self.in_service.requests, requests),
            tokens: more(self.tokens, self.in_service.tokens, tokens),
        }
    }

    /// Returns this router's share of a budget, by the capacities of these workers.
    fn limit(
        &self,
        budget: BudgetSpec,
        workers: &[&Worker],
        most: fn(&Self, &Worker) -> Option<u64>,
    ) -> Option<u64> {
        let limit = match budget {
            BudgetSpec::Off => return None,
            BudgetSpec::Fixed(limit) => limit,
            BudgetSpec::Auto { .. } => {
                let sum: Option<u64> = workers.iter().map(|worker| most(self, worker)).sum();
                // A pool without workers is refused elsewhere.
                sum?.max(1)
            }
        };
        Some((limit / u64::from(self.routers.get())).max(limit.min(1)))
    }

    /// Returns the capacity of a worker in requests. `None`: unlimited.
    fn most_requests(&self, worker: &Worker) -> Option<u64> {
        let per_worker = self.requests.per_worker();
        let bearable = self
            .tbt_target
            .and_then(|target| bearable(worker, target, per_worker?));
        bearable.or(per_worker)
    }

    /// Returns the capacity of a worker in tokens. `None`: unlimited.
    fn most_tokens(&self, worker: &Worker) -> Option<u64> {
        cache(worker).or(self.tokens.per_worker())
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
