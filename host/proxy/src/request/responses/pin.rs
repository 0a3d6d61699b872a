//! Requests that go on from an earlier response: they are placed on the worker that keeps it.

use std::time::Instant;

use super::{ResponseKey, ResponseOrigin, check_in_service, member_of};
use crate::base::reply::Refusal;
use crate::dispatch::pool_state::PoolState;
use crate::proxy::Proxy;
use crate::request::snapshot::Snapshot;

/// Returns the member that keeps the response of that id, by its index. `None` where the id is unknown, or where a
/// worker of another pool than `pool`, that of the request's model, made the response. In these cases the policy
/// decides, and the engine handles the id.
///
/// # Errors
/// [`Refusal::ResponseUnknown`] for the id of another client's response. Engines do not separate clients, and the model
/// would continue that response.
pub(crate) fn pinned(
    proxy: &Proxy,
    snapshot: &Snapshot,
    pool: &PoolState,
    key: ResponseKey<'_>,
) -> Result<Option<usize>, Refusal> {
    let (table, id) = (&proxy.responses, key.id);
    let limits = snapshot.edge.limits.responses();
    let origin = table.find(key, limits, Instant::now());
    if !matches!(origin, ResponseOrigin::Worker(_)) {
        table.metrics.unknown.inc();
    }
    let worker = match origin {
        ResponseOrigin::Worker(worker) => worker,
        ResponseOrigin::Unknown => return Ok(None),
        ResponseOrigin::OtherClient => return Err(Refusal::ResponseUnknown { id: id.into() }),
    };
    let Some(member) = member_of(pool, worker) else {
        table.metrics.gone.inc();
        let is_elsewhere = snapshot.members().any(|other| other.worker.id() == worker);
        return if is_elsewhere {
            Ok(None)
        } else {
            Err(Refusal::ResponseLost { id: id.into() })
        };
    };
    check_in_service(&pool.workers.members[member], id).inspect_err(|_| {
        table.metrics.gone.inc();
    })?;
    table.metrics.found.inc();
    Ok(Some(member))
}
