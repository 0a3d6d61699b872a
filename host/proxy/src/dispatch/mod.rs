//! Placement of a request, its attempts, and requests split over two workers.

pub(crate) mod attempt;
pub(crate) mod call_observer;
pub(crate) mod crashes;
pub(crate) mod decide;
pub(crate) mod matches;
#[cfg(test)]
mod parity_tests;
pub(crate) mod queries;
mod retry;
pub(crate) mod router_view;
pub(crate) mod speculative_insert;
pub(crate) mod split;
