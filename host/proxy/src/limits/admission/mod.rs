//! Admission control: a pool's budgets, and its queue of requests that wait for the budget or are held by a policy.
//!
//! The queueing rules are in `routing` (`routing/src/admission/`); this module adds the waits. `AdmissionController`
//! belongs to a pool and outlives snapshots. `AdmissionSession` is one request's admission. A `Permit` is its share of
//! the budget until its response ends.

mod capacity;
mod early;
mod gate;
mod metrics;
mod passage;
mod permit;
mod report;
mod spec;
mod ticket;
mod wish;

pub use report::BudgetReport;
pub use spec::{AdmissionSpec, BudgetSpec, Objectives};

pub(crate) use capacity::Capacity;
pub(crate) use gate::AdmissionController;
pub(crate) use metrics::{AdmissionFamilies, AdmissionMetrics, CLASSES};
pub(crate) use passage::AdmissionSession;
pub(crate) use permit::Permit;
pub(crate) use spec::Admission;
pub(crate) use ticket::{QueuePosition, longest_hold};
pub(crate) use wish::{PriorityHint, RequestTerms, deadline};

#[cfg(test)]
mod release_tests;
#[cfg(test)]
mod tests;
