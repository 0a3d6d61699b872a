//! The router of a simulation: the server's own types and rules, with a model's numbers in the place of clocks and sockets.
//!
//! Bottom up: `spec` (how it is set up) and `placement` (what it answers); `fleet`, `view`, `prices`, `backlog` and `bookings` (what is
//! known of workers, caches, costs and requests in flight); `columns` and `queries` (what a policy is shown of it); `place` (how a
//! decision is made) and `asking` (what becomes of it); `ears` (who is told what happened); `single` with `dispatch` (one router); `replicas` (several).

mod asking;
mod backlog;
mod bookings;
mod columns;
mod counts;
mod dispatch;
mod ears;
mod fleet;
mod place;
mod placement;
mod prices;
mod queries;
mod replicas;
mod single;
mod spec;
#[cfg(test)]
mod tests;
mod view;

pub use self::counts::RouterCounts;
pub(crate) use self::placement::Placement;
pub(crate) use self::replicas::Routers;
pub use self::spec::{CostSource, Knowledge, Policies, QueueSpec, RouterSpec};
