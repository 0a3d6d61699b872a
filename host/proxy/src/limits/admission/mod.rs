//! Who may go in: a pool's budgets, and its queue for those who have to wait, for the budget or because a policy holds them.
//!
//! The rules are `routing`'s (`routing/src/admission/`); here are the waits. `AdmissionController` is a pool's, over all snapshots;
//! `AdmissionSession` is one request's way through it; a `Permit` is what it takes of the budget until its answer ends.

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
