//! A pool's budget and who waits for it, for whoever shows it.

use routing::{BudgetLimits, BudgetUse};

use super::metrics::CLASSES;
use crate::request::snapshot::PoolState;

/// The budget of a pool that has one.
#[derive(Debug, Clone, Copy)]
pub struct BudgetReport {
    /// What is under way.
    pub used: BudgetUse,
    /// What may be.
    pub limits: BudgetLimits,
    /// How many wait, by kind of class: `sheddable` (priority below 0), `standard` (0), `preferred` (above).
    pub waiting: [(&'static str, usize); CLASSES.len()],
}

impl BudgetReport {
    pub(crate) fn of(pool: &PoolState) -> Option<Self> {
        pool.admission.as_ref()?;
        let (used, limits) = pool.queue.budget();
        let counts = pool.queue.counts();
        Some(Self {
            used,
            limits,
            waiting: std::array::from_fn(|at| (CLASSES[at], counts[at])),
        })
    }
}
