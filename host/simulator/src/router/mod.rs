//! The router of a simulation: the server's own types and procedure, with virtual time and the numbers of a model.
//!
//! Bottom up: `spec` (its configuration) and `placement` (its answers); `fleet`, `index`, `prices`, `backlog` and
//! `bookings` (workers, caches, costs and requests in flight); `state` (all of it); `router_view` (what the crate
//! `placement` reads of it); `evaluation` (one request is placed or held); `events` (events of policies); `single` with
//! `dispatch` (one router); `sharing` (their exchange of loads); `replicas` (several).

mod backlog;
mod bookings;
mod counts;
mod dispatch;
mod evaluation;
mod events;
mod fleet;
mod index;
mod noted_request;
mod placement;
mod prices;
mod probe;
mod replicas;
mod router_view;
mod sharing;
mod sharing_spec;
mod single;
mod spec;
mod state;
#[cfg(test)]
mod tests;

pub use self::counts::RouterCounts;
pub(crate) use self::placement::Placement;
pub use self::probe::{ProbedRequest, RouterProbe};
pub(crate) use self::replicas::Routers;
pub use self::sharing_spec::{BusCut, SharingSpec};
pub use self::spec::{
    CostSource, Knowledge, Policies, QueueSpec, RouterBalance, RouterDeath, RouterSpec, UNKNOWN_NUMBERS,
};
pub(crate) use self::state::ArrivedRequest;
