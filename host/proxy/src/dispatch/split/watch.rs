//! Loop that keeps the engine ids of bootstrap servers and the dialects of pools up to date.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::detect;
use crate::proxy::Proxy;

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Queries the bootstrap servers of the active snapshot whenever they are due, until `stop`.
pub(crate) async fn keep_bootstraps(proxy: Arc<Proxy>, stop: CancellationToken) {
    loop {
        let snapshot = proxy.snapshots.load();
        let servers = snapshot.members().filter_map(|member| member.bootstrap.as_ref());
        detect::look(&proxy, &snapshot.pools, &stop);
        let now = Instant::now();
        let due = servers.filter(|server| server.is_due(now));
        join_all(due.map(|server| server.renew())).await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}
