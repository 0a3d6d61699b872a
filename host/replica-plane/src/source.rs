//! Sources of the exchange: the router's pools, workers and state.

use std::num::NonZeroU32;
use std::sync::Arc;

use replicas::{IndexFill, PoolGauges, RouterState, UsageChange, UsageReading};
use routing::{BudgetUse, HeldSummary, Worker, WorkerId};

/// The active fleet of this router.
pub trait FleetSource: Send + 'static {
    /// Pool of the fleet.
    type Pool: SharedPool;

    /// Returns the number of the active configuration.
    fn generation(&self) -> u64;

    /// Returns the pools of the active configuration.
    fn pools(&self) -> Vec<Self::Pool>;

    /// Returns the groups of limits and counters of the active configuration.
    fn usage_groups(&self) -> Vec<Box<dyn UsageGroup>>;

    /// Returns the state of this router.
    fn state(&self) -> RouterState;

    /// Returns the fill of the index at the start.
    fn fill(&self) -> IndexFill;

    /// Returns a hash of the configuration file.
    fn config_hash(&self) -> String;
}

/// A pool whose loads are shared.
pub trait SharedPool: Send + Sync {
    /// Returns the name.
    fn name(&self) -> &str;

    /// Returns the workers.
    fn workers(&self) -> Vec<Arc<Worker>>;

    /// Returns the number of requests in the pool's own queue.
    fn queued(&self) -> usize;

    /// Returns the own use of the pool's budgets.
    fn budget(&self) -> BudgetUse;

    /// Calls `visit` with each worker that own held requests wait for, and their summary.
    fn summarize_waiters(&self, visit: &mut dyn FnMut(WorkerId, &HeldSummary));

    /// Applies what the other routers have in the pool.
    fn set_elsewhere(&self, elsewhere: &ElsewhereNews<'_>);
}

/// State of the other routers in a pool, and the capacity that they freed.
#[derive(Debug)]
pub struct ElsewhereNews<'n> {
    /// Sums of their gauges.
    pub gauges: PoolGauges,
    /// Workers of the pool at which they freed capacity.
    pub freed: &'n [WorkerId],
}

/// Group of counters that routers share, such as the limits of clients or the tenants of a pool.
pub trait UsageGroup: Send {
    /// Returns the hash of the group's name.
    fn group(&self) -> u64;

    /// Calls `visit` with the hashed name of each counter or gauge, and the own use.
    fn visit(&mut self, visit: &mut dyn FnMut(u64, UsageReading));

    /// Applies a change at other routers. Unknown names are ignored.
    fn apply(&mut self, name: u64, change: UsageChange);

    /// Divides the group's limits by so many routers, because what the others use is not known. 1 is the whole limit.
    fn divide(&self, routers: NonZeroU32);
}
