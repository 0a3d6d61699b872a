//! The only place of this crate that spawns: every task has a name and ends by a token it was given.

use std::future::Future;

use tokio::task::JoinHandle;
use tracing::Instrument;

#[expect(
    clippy::disallowed_methods,
    reason = "this is the place that the rule points to"
)]
pub(crate) fn spawn<T: Send + 'static>(
    name: &'static str,
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(task.instrument(tracing::debug_span!("task", name)))
}
