//! Task spawning: the only place of the crate that spawns. Every task is tracked and has a named span.

use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Handle that aborts its task when dropped.
#[derive(Debug)]
pub(crate) struct TaskGuard(AbortHandle);

/// Spawns `task` for as long as the returned guard is held.
pub(crate) fn spawn_guarded<F>(tracker: &TaskTracker, name: &'static str, task: F) -> TaskGuard
where
    F: Future<Output = ()> + Send + 'static,
{
    let task = tracker.spawn(task.instrument(tracing::debug_span!("task", name)));
    TaskGuard(task.abort_handle())
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}
