//! Who may go in, and who of those that wait goes next: budgets, the order of a queue, and how fast it drains.
//!
//! Pure: times are microseconds on a clock of the caller's, and what a waiting request is to be told with is a value of the
//! caller's that is only kept here.

mod aims;
mod budget;
mod drain;
mod lane;
mod line;
mod release;
mod tenants;

pub use aims::Aims;
pub use budget::{Budget, BudgetLimits, BudgetUse};
pub use drain::DrainRate;
pub use line::{ClassCounts, Held, Waiting, WaitingLine};
pub use release::Release;
pub use tenants::weighted_tokens;

#[cfg(test)]
mod tests;
