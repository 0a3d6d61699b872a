//! Ctrl-c and SIGTERM as a flag, so that a run ends through its drops: children killed, temporary folders removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

/// Set once the user interrupts.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for SIGINT and SIGTERM on a thread of its own, until the process ends.
    ///
    /// # Errors
    /// Where the thread or the signal handlers cannot be set up.
    pub fn listen() -> Result<Self> {
        let interrupt = Self::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.context("failed to build the runtime of the signal thread")?;
        let guard = runtime.enter();
        let mut ctrl_c = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
        drop(guard);
        let flag = Arc::clone(&interrupt.0);
        let listener = move || {
            runtime.block_on(async {
                tokio::select! { _ = ctrl_c.recv() => {}, _ = terminate.recv() => {} }
            });
            flag.store(true, Ordering::Relaxed);
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(listener)
            .context("failed to start a thread")?;
        Ok(interrupt)
    }

    /// Returns `true` once the user has interrupted.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
