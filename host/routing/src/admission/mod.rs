//! Admission control: budgets, the fair priority queue, and its drain rate.
//!
//! Pure: times are microseconds on a clock of the caller's. The waker of a queued request is a value of the caller's
//! that is only kept here.

mod budget;
mod capacity_event;
mod decision_pace;
mod drain;
mod fair_queue;
mod held_summary;
mod order_key;
mod precedence;
mod sweep;
mod tenant_queue;
mod tenants;
mod waiters;
mod waiting;

pub use budget::{Budget, BudgetLimits, BudgetUse};
pub use capacity_event::{CapacityEvent, DeferredEvent, ElsewherePace, PacedEvent};
pub use decision_pace::least_pause_us;
pub use drain::DrainRate;
pub use fair_queue::{ClassCounts, FairQueue};
pub use held_summary::{HELD_CLASSES, HeldClass, HeldSummary};
pub use precedence::RequestRank;
pub use tenants::{TenantService, weighted_tokens};
pub use waiters::{WaitersByWorker, WorkerWaiter};
pub use waiting::{Held, Waiting};

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod sweep_tests;
#[cfg(test)]
mod tests;
