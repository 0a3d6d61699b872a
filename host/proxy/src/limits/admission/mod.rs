//! Admission control: a pool's budgets, and its queue of requests that wait for the budget or are held by a policy.
//!
//! The queueing rules are in `routing` (`routing/src/admission/`); this module adds the waits. `AdmissionController`
//! belongs to a pool and outlives snapshots. `AdmissionSession` is one request's admission. A `Permit` is its share of
//! the budget until its response ends.

mod admission_request;
mod capacity;
mod controller;
mod early_rejection;
mod fleet_share;
mod metrics;
mod permit;
mod queue_entry;
mod recompute;
mod releases;
mod report;
mod session;
mod spec;
mod work_ahead;

pub use report::BudgetReport;
pub use spec::{AdmissionSpec, BudgetSpec, Objectives};

pub(crate) use admission_request::{
    AdmissionInput, PoolQueue, PriorityHint, RequestTerms, start_deadline, ttft_target,
};
pub(crate) use capacity::Capacity;
pub(crate) use controller::AdmissionController;
pub(crate) use metrics::{AdmissionFamilies, CLASSES};
pub(crate) use permit::Permit;
pub(crate) use queue_entry::{QueuePosition, longest_hold};
pub(crate) use session::AdmissionSession;
pub(crate) use spec::Admission;

#[cfg(test)]
mod hold_tests;
#[cfg(test)]
mod release_tests;
#[cfg(test)]
mod sweep_tests;
#[cfg(test)]
mod tests;
