//! Requests that go on from an earlier response: they are placed on the worker that keeps it.

use std::time::Instant;

use super::{ResponseKey, ResponseOrigin, check_in_service, member_of};
use crate::base::reply::Refusal;
use crate::dispatch::inference_request::InferenceRequest;
use crate::proxy::Proxy;
use crate::request::snapshot::Snapshot;

/// Returns the member that keeps the response of that id, by its index. `None` where the id is unknown, or where a
/// worker of another pool than that of the request's model made the response. In these cases the policy decides, and
/// the engine handles the id.
///
/// # Errors
/// [`Refusal::ResponseUnknown`] for the id of another client's response: engines have no clients, so that the model would
/// go on from it.
pub(crate) fn pinned(
    proxy: &Proxy,
    snapshot: &Snapshot,
    request: &InferenceRequest,
    id: &str,
) -> Result<Option<usize>, Refusal> {
    let table = &proxy.responses;
    let client = request.sender.client.as_ref();
    let key = ResponseKey {
        client: client.map_or("", |client| &client.name),
        id,
    };
    let limits = snapshot.edge.limits.responses();
    let worker = match table.find(key, limits, Instant::now()) {
        ResponseOrigin::Worker(worker) => worker,
        origin => {
            table.metrics.unknown.inc();
            return match origin {
                ResponseOrigin::OtherClient => Err(Refusal::ResponseUnknown { id: id.into() }),
                _ => Ok(None),
            };
        }
    };
    let Some(member) = member_of(request.pool(), worker) else {
        table.metrics.gone.inc();
        let is_elsewhere = snapshot.members().any(|other| other.worker.id() == worker);
        return if is_elsewhere {
            Ok(None)
        } else {
            Err(Refusal::ResponseLost { id: id.into() })
        };
    };
    check_in_service(&request.pool().workers.members[member], id).inspect_err(|_| {
        table.metrics.gone.inc();
    })?;
    table.metrics.found.inc();
    Ok(Some(member))
}
