//! Loop that keeps the engine ids of bootstrap servers and the dialects of pools up to date.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::detect::DetectedPool;
use crate::dispatch::pool_state::PoolState;

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Queries the bootstrap servers of the active pools whenever they are due, until `stop`.
pub(crate) async fn keep_bootstraps(
    active_pools: impl Fn() -> Vec<Arc<PoolState>>,
    background: TaskTracker,
    stop: CancellationToken,
) {
    loop {
        let pools = active_pools();
        let members = pools.iter().flat_map(|pool| &pool.workers.members);
        let servers = members.filter_map(|member| member.bootstrap.as_ref());
        for pool in pools.iter().filter_map(detected_pool) {
            pool.query(&background, stop.clone());
        }
        let now = Instant::now();
        let due = servers.filter(|server| server.is_due(now));
        join_all(due.map(|server| server.renew())).await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// Returns the pool for its detection, if its dialect is detected.
fn detected_pool(pool: &Arc<PoolState>) -> Option<DetectedPool> {
    let pd = pool.pd.as_ref()?;
    Some(DetectedPool {
        detection: Arc::clone(pd.detection.as_ref()?),
        workers: Arc::clone(&pool.workers),
        alone: pd.spec.alone,
    })
}
