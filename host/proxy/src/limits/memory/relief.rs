//! Periodic memory check, and load shedding.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::resident::resident;
use super::{Change, Memory, MemoryStage};

/// Interval of checks. `buffered-bodies` bounds the growth in between.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Holders of memory that can be freed.
pub(crate) trait MemoryRelief: Send + Sync + 'static {
    /// Shrinks caches that can be rebuilt to the size that the stage leaves them.
    fn shrink_caches(&self, stage: MemoryStage);

    /// Closes the idle connections of clients.
    fn end_idle_connections(&self);

    /// Drops the largest body in arrival.
    fn end_largest_body(&self);
}

/// Checks the memory until `stop`, and sheds load through `relief`.
pub(crate) async fn keep_watch(memory: Arc<Memory>, relief: impl MemoryRelief, stop: CancellationToken) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = looks.tick() => look(&memory, &relief),
        }
    }
}

fn look(memory: &Memory, relief: &impl MemoryRelief) {
    let limit = memory.limit();
    // The memory is only read if the result is used.
    let reading = limit.and_then(|_| resident());
    let change = memory.look(reading);
    if let Some(change) = change {
        log_change(change, reading, limit);
    }
    let stage = memory.stage();
    if change.is_some() || stage > MemoryStage::Calm {
        // A reload in the meantime has reset them to their full limits.
        relief.shrink_caches(stage);
    }
    if stage >= MemoryStage::Saving {
        relief.end_idle_connections();
    }
    if stage >= MemoryStage::Ending {
        relief.end_largest_body();
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
