//! Reload: the one thread that reads the configuration and the policies whenever something may have changed, and makes
//! them active.
//!
//! A reload has two phases. The *plan* (`plan.rs`, `parts.rs`) only reads: it parses, loads policies, builds the next
//! snapshot and binds sockets, and each step that can fail is a
//! [`PlanStep`](admin_pages::control::PlanStep). The *commit* (`commit.rs`) makes the plan active and cannot fail. So a
//! change applies as a whole to new requests, or nothing changes and the reason is
//! logged, counted and shown.
//!
//! Edited files, changed resources, instances changed over HTTP and policies all take this way. A start is the first
//! reload, of a router without pools and routes (`start.rs`). Policies are compiled on a thread of their own
//! (`policy-store/src/library/loading.rs`). A plan with a missing policy waits for it, and nothing else waits.

mod active;
mod agreed;
mod circuits;
mod commit;
mod files;
#[cfg(test)]
mod held_tests;
mod instances;
mod journal;
mod live;
mod outcome;
mod parts;
mod pending;
mod plan;
mod policies;
mod problem;
mod read;
mod refused_workers;
mod reloader;
mod renewal;
mod resources;
mod rounds;
mod routes;
mod sources;
mod start;
mod step;
#[cfg(test)]
mod tests;
mod thread;
mod watch;

pub(crate) use self::active::ActiveConfig;
use self::active::Candidate;
pub(crate) use self::agreed::AgreedFollower;
pub(crate) use self::circuits::CircuitWatch;
pub(crate) use self::journal::Journal;
pub(crate) use self::live::Live;
pub(crate) use self::parts::{Parts, Planner};
pub(crate) use self::plan::FilePlan;
pub(crate) use self::problem::RefusedConfig;
pub(crate) use self::problem::{log_warnings, reports};
pub(crate) use self::read::{examine, log_level_problem, read};
pub(crate) use self::reloader::Reloader;
pub(crate) use self::step::{RefusedPlan, Steps};
