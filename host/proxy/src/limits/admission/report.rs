//! Report of a pool's budget and of the requests that wait for it.

use routing::{BudgetLimits, BudgetUse};

use super::controller::AdmissionController;
use super::metrics::CLASSES;

/// Budget of a pool that has one.
#[derive(Debug, Clone, Copy)]
pub struct BudgetReport {
    /// Current usage.
    pub used: BudgetUse,
    /// Current limits.
    pub limits: BudgetLimits,
    /// Number of waiting requests by kind of class: `sheddable` (priority below 0), `standard` (0), `preferred`
    /// (above).
    pub waiting: [(&'static str, usize); CLASSES.len()],
}

impl BudgetReport {
    /// Returns the report of a pool's budget and queue.
    pub(crate) fn of(controller: &AdmissionController) -> Self {
        let (used, limits) = controller.budget();
        let counts = controller.counts();
        Self {
            used,
            limits,
            waiting: std::array::from_fn(|at| (CLASSES[at], counts[at])),
        }
    }
}
