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
    /// Workers that have left the pool, while they have requests of it.
    leaving: Vec<OtherWorker>,
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
    counted: CountedRequests,
}

/// Requests that count of a worker out of service.
#[derive(Debug, Clone, Copy)]
enum CountedRequests {
    /// Those of all routers, because the others report their use of the budget and their load.
    OfAll,
    /// Those of this router.
    Own,
    /// Those of this router at a worker that has left the fleet.
    Left,
    /// At most so many of this router, at a worker that has moved to another pool.
    Moved(u64),
}

impl OtherWorker {
    fn leaving(worker: Arc<Worker>, counted: CountedRequests) -> Self {
        Self {
            worker,
            most: BudgetLimits::default(),
            counted,
        }
    }

    /// Returns the requests that it has now.
    fn running(&self) -> u64 {
        let load = self.worker.load();
        let own = || u64::from(load.own().requests);
        match self.counted {
            CountedRequests::OfAll => load.read().requests.into(),
            CountedRequests::Own | CountedRequests::Left => own(),
            CountedRequests::Moved(most) => own().min(most),
        }
    }

    /// Returns `true` if the pool no longer has it.
    fn has_left(&self) -> bool {
        matches!(self.counted, CountedRequests::Left | CountedRequests::Moved(_))
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

    /// Creates the capacity of a pool of one request, whose worker left the fleet.
    #[cfg(test)]
    pub(super) fn left_by(worker: Arc<Worker>) -> Self {
        Self {
            is_any: true,
            requests: BudgetSpec::Auto { per_worker: Some(1) },
            leaving: vec![OtherWorker::leaving(worker, CountedRequests::Left)],
            ..Self::default()
        }
    }

    /// Creates the capacity of a pool without workers whose limits are recomputed. It has so many requests.
    #[cfg(test)]
    pub(super) fn recomputed(requests: u64) -> Self {
        Self {
            tokens: BudgetSpec::Auto { per_worker: None },
            ..Self::fixed(Some(requests), None)
        }
    }

    /// Replaces the inputs of the configuration. Workers that left the fleet, which drain by then, are
    /// kept in `leaving`.
    pub(super) fn replace(&mut self, next: Self) {
        let stay: HashSet<WorkerId> = next.workers.iter().map(|(worker, _)| worker.id()).collect();
        let before = std::mem::take(&mut self.workers).into_iter();
        let gone = before.filter_map(|(worker, link)| link.health.is_draining().then_some(worker));
        let mut leaving = std::mem::take(&mut self.leaving);
        for worker in gone {
            if !leaving.iter().any(|other| other.worker.id() == worker.id()) {
                leaving.push(OtherWorker::leaving(worker, CountedRequests::Left));
            }
        }
        leaving.retain(|other| !stay.contains(&other.worker.id()));
        *self = Self {
            routers: self.routers,
            leaving,
            ..next
        };
    }

    /// Counts the present requests of a worker as those of this pool, which another pool takes over. `of_others` are
    /// those that the worker has of other pools.
    pub(super) fn moves(&mut self, worker: &Arc<Worker>, of_others: u64) {
        let own = u64::from(worker.load().own().requests);
        let counted = CountedRequests::Moved(own.saturating_sub(of_others));
        let moved = OtherWorker::leaving(Arc::clone(worker), counted);
        self.leaving.push(moved);
    }

    /// Returns the requests of this pool at a worker that another pool took over.
    pub(super) fn moved(&self, worker: WorkerId) -> u64 {
        let of_worker = self.leaving.iter().filter(|other| other.worker.id() == worker);
        let moved = of_worker.map(|other| match other.counted {
            CountedRequests::Moved(requests) => requests,
            CountedRequests::OfAll | CountedRequests::Own | CountedRequests::Left => 0,
        });
        moved.sum()
    }

    /// Records that a lease of this pool on a worker has ended.
    pub(super) fn lease_ended(&mut self, worker: WorkerId) {
        for other in self.leaving.iter_mut().chain(&mut self.others) {
            if let CountedRequests::Moved(requests) = &mut other.counted
                && other.worker.id() == worker
            {
                *requests = requests.saturating_sub(1);
            }
        }
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
        self.leaving.retain(|other| other.running() > 0);
        let serves = |link: &WorkerHandle| !link.health.is_draining() && !link.is_out();
        // If no worker is in service, all are counted rather than none.
        let counts_all = !self.workers.iter().any(|(_, link)| serves(link));
        let counted = match self.routers {
            NonZeroU32::MIN => CountedRequests::OfAll,
            _ => CountedRequests::Own,
        };
        let other = |worker: &Arc<Worker>, counted| OtherWorker {
            worker: Arc::clone(worker),
            most: BudgetLimits {
                requests: self.most_requests(worker),
                tokens: self.most_tokens(worker),
            },
            counted,
        };
        let mut serving = Vec::new();
        let leaving = self.leaving.iter();
        let mut others: Vec<_> = leaving.map(|left| other(&left.worker, left.counted)).collect();
        for (worker, link) in &self.workers {
            if counts_all || serves(link) {
                serving.push(&**worker);
            } else {
                others.push(other(worker, counted));
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
        let running = self.running_at(self.others.iter(), used);
        let more = |limit: Option<u64>, running: u64| limit.map(|limit| limit.saturating_add(running));
        BudgetLimits {
            requests: more(self.in_service.requests, running.requests),
            tokens: more(self.in_service.tokens, running.tokens),
        }
    }

    /// Returns the use of the budget without that of the workers that have left the pool, where the limits have room
    /// for them.
    pub(super) fn without_leavers(&self, used: BudgetUse) -> BudgetUse {
        let leavers = self.others.iter().filter(|other| other.has_left());
        let running = self.running_at(leavers, used);
        BudgetUse {
            requests: used.requests.saturating_sub(running.requests),
            tokens: used.tokens.saturating_sub(running.tokens),
        }
    }

    /// Returns what these workers out of service use of the budgets that follow the workers.
    fn running_at<'a>(&self, others: impl Iterator<Item = &'a OtherWorker>, used: BudgetUse) -> BudgetUse {
        let mean_tokens = used.tokens / used.requests.max(1);
        let bounded = |budget: BudgetSpec, running: u64, most: Option<u64>| match budget {
            BudgetSpec::Auto { .. } => most.map_or(running, |most| running.min(most)),
            BudgetSpec::Off | BudgetSpec::Fixed(_) => 0,
        };
        let mut sum = BudgetUse::default();
        for other in others {
            let running = other.running();
            let requests = bounded(self.requests, running, other.most.requests);
            let tokens = bounded(
                self.tokens,
                running.saturating_mul(mean_tokens),
                other.most.tokens,
            );
            sum.requests = sum.requests.saturating_add(requests);
            sum.tokens = sum.tokens.saturating_add(tokens);
        }
        sum
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
