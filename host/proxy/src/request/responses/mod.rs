//! Responses that engines keep: a response's id leads back to the worker that made it.
//!
//! `table.rs` is the table of ids, and `learner.rs` fills it from passing answers. `retrieve.rs` serves requests for a
//! response by its id. `pin.rs` places requests that go on from one.

mod learner;
mod metrics;
mod pin;
mod retrieve;
mod table;

pub(crate) use self::learner::{ResponseLearner, learner};
pub(crate) use self::metrics::ResponseMetrics;
pub(crate) use self::pin::pinned;
pub(crate) use self::retrieve::{CLASS, RESPONSE_PAGES, ResponseCall, answer};
pub(crate) use self::table::{OutputTokens, ResponseKey, ResponseOrigin, ResponseTable};
use crate::base::reply::Refusal;
use crate::dispatch::pool_state::PoolState;
use crate::fleet::pool::Member;

/// Checks that the worker of a response can serve a request for it now.
fn check_in_service(member: &Member, id: &str) -> Result<(), Refusal> {
    if member.link.is_out() {
        return Err(Refusal::ResponseWorkerOut { id: id.into() });
    }
    Ok(())
}

/// Returns the index of a worker among the members of a pool.
fn member_of(pool: &PoolState, worker: routing::WorkerId) -> Option<usize> {
    pool.workers
        .members
        .iter()
        .position(|member| member.worker.id() == worker)
}
