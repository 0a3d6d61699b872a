//! The attackers' own threads. They have the lowest priority: real attackers have machines of their own, and what is
//! measured is how much the router's work for them delays others, not how busy the measuring machine is with attacking.

use anyhow::{Context, Result};
use tokio::runtime::{Builder, EnterGuard, Runtime};

const NICENESS: i32 = 19;

/// Threads that run attacks until this is dropped.
pub(super) struct Attackers(Option<Runtime>);

impl Attackers {
    pub(super) fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("attackers")
            .enable_all()
            .on_thread_start(|| {
                // Without it they only compete with the ordinary clients.
                let _ = rustix::process::setpriority_process(None, NICENESS);
            })
            .build();
        Ok(Self(Some(runtime.context("start the attackers' threads")?)))
    }

    /// Enters the runtime. While the guard is held, tasks are spawned on these threads.
    pub(super) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.0.as_ref().map(Runtime::enter)
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // A drop must not block here.
            runtime.shutdown_background();
        }
    }
}
