//! The only place of this crate that spawns: a task for each source.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tracing::Instrument;

use crate::poll::follow;
use crate::spec::SourceSpec;
use crate::state::SourceState;

/// Task of a source. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct SourceTask(AbortHandle);

impl SourceTask {
    /// Starts following a source.
    pub(crate) fn spawn(runtime: &Handle, spec: SourceSpec, state: Arc<SourceState>) -> Self {
        let span = tracing::debug_span!("task", name = "worker-source", source = &*spec.name);
        let task = runtime.spawn(follow(spec, state).instrument(span));
        Self(task.abort_handle())
    }
}

impl Drop for SourceTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
