//! Task spawning. Only the deferred event of a queue (`limits/admission/releases.rs`) is spawned elsewhere. Every task
//! is tracked and carries its name in its span. It ends by itself when its token is cancelled.

use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Runs `task` on the runtime, counted by `tracker`.
pub(crate) fn spawn<F>(tracker: &TaskTracker, name: &'static str, task: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    drop(tracker.spawn(task.instrument(tracing::debug_span!("task", name))));
}

/// Spawns a task as above. The task runs for as long as the returned guard is held or was let go.
pub(crate) fn spawn_guarded<F>(tracker: &TaskTracker, name: &'static str, task: F) -> Guard
where
    F: Future<Output = ()> + Send + 'static,
{
    let task = tracker.spawn(task.instrument(tracing::debug_span!("task", name)));
    Guard(Some(task.abort_handle()))
}

/// Guard that aborts its task when dropped.
#[derive(Debug)]
pub(crate) struct Guard(Option<AbortHandle>);

impl Guard {
    /// Lets the task go on without the guard.
    pub(crate) fn let_go(mut self) {
        self.0 = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
