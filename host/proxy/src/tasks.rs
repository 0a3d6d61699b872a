//! The only place that spawns. Every task is tracked, carries its name in its span, and ends by itself when its
//! token is cancelled.

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

/// The same, for as long as the guard that is returned is held or was let go.
pub(crate) fn spawn_guarded<F>(tracker: &TaskTracker, name: &'static str, task: F) -> Guard
where
    F: Future<Output = ()> + Send + 'static,
{
    let task = tracker.spawn(task.instrument(tracing::debug_span!("task", name)));
    Guard(Some(task.abort_handle()))
}

/// Aborts its task when dropped.
#[derive(Debug)]
pub(crate) struct Guard(Option<AbortHandle>);

impl Guard {
    /// Lets the task go on by itself.
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
