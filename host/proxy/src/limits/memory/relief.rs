//! Periodic memory check, and load shedding.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::resident::resident;
use super::{Change, MemoryStage};
use crate::edge::connections::ConnectionLimiter;
use crate::proxy::Proxy;

/// Interval of checks. `buffered-bodies` bounds the growth in between.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs the checks until `stop`.
pub(crate) async fn keep_watch(proxy: Arc<Proxy>, room: Arc<ConnectionLimiter>, stop: CancellationToken) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = looks.tick() => look(&proxy, &room),
        }
    }
}

fn look(proxy: &Proxy, room: &ConnectionLimiter) {
    let edge = proxy.snapshots.edge();
    let limit = edge.memory.limit();
    // The memory is only read if the result is used.
    let reading = limit.and_then(|_| resident());
    let change = edge.memory.look(reading);
    if let Some(change) = change {
        log_change(change, reading, limit);
    }
    let stage = edge.memory.stage();
    if change.is_some() || stage > MemoryStage::Calm {
        // A reload in the meantime has reset them to their full limits.
        proxy.snapshots.load().shrink_caches(stage);
    }
    if stage >= MemoryStage::Saving {
        room.end_idle();
    }
    if stage >= MemoryStage::Ending {
        edge.bodies.end_largest();
    }
}

fn log_change(Change { was, is }: Change, resident: Option<u64>, limit: Option<u64>) {
    let (was, stage) = (was.as_str(), is.as_str());
    if is > MemoryStage::Calm {
        warn!(stage, was, resident, limit, "memory is short: see `memory-limit`");
    } else {
        info!(stage, was, resident, limit, "memory is short no more");
    }
}
