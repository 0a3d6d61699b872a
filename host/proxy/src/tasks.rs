//! The only place that spawns. Every task is tracked, carries its name in its span, and ends by itself when its
//! token is cancelled.

use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Runs `task` on the runtime, counted by `tracker`.
pub(crate) fn spawn<F>(tracker: &TaskTracker, name: &'static str, task: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    drop(tracker.spawn(task.instrument(tracing::debug_span!("task", name))));
}
