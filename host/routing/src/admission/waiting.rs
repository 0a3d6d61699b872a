//! A request in the queue, and the hold of one by its policy.

use std::sync::Arc;

use crate::id::WorkerId;

/// A request in the queue.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Priority class; below 0, the request may be shed for another.
    pub class: i32,
    /// Tenant.
    pub tenant: Arc<str>,
    /// Charge of its tenant: weighted tokens over the tenant's weight.
    pub share: f64,
    /// Share of the budget of tokens.
    pub tokens: u64,
    /// Work before its first token, in tokens: the shorter goes first.
    pub work: u64,
    /// Time of that work; 0 while unknown.
    pub runs_us: u64,
    /// Time by which it must leave the queue to be of use.
    pub start_by_us: u64,
    /// Terms of its policy's hold. `None` if it waits for the budget.
    pub held: Option<Held>,
}

/// A hold of a request by its policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// Ascending: the least goes first.
    pub order: f64,
    /// Number of capacity events when it was decided: a later one may lead to another decision. None: it is due as soon
    /// as there is room.
    pub evaluated_at: Option<u64>,
    /// The worker that it waits for, and its work there in the policy's unit.
    pub waits_for: Option<(WorkerId, u32)>,
}

impl Waiting {
    pub(super) fn waits_for(&self) -> Option<(WorkerId, u32)> {
        self.held?.waits_for
    }

    /// Returns the worker that it waits for.
    #[must_use]
    pub fn awaited_worker(&self) -> Option<WorkerId> {
        Some(self.waits_for()?.0)
    }
}
