//! Clock of a test's runtime that stands still, so that no timer ends before the test is ready for it.

use std::cell::Cell;
use std::pin::pin;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

thread_local! {
    static IS_STOPPED: Cell<bool> = const { Cell::new(false) };
}

/// Times that every task runs, so that messages on their way arrive.
const TURNS: usize = 100;

/// Stopped clock of the runtime. Only the test moves it while this lives, however slow the machine is.
///
/// Times that are not read from this clock go on.
pub(crate) struct StoppedClock {
    /// Ends the blocking work. While it runs, tokio does not move the clock to the next timer by itself.
    _blocking: SyncSender<()>,
}

impl StoppedClock {
    pub(crate) fn stop() -> Self {
        let (blocking, blocked) = sync_channel::<()>(0);
        drop(tokio::task::spawn_blocking(move || blocked.recv()));
        tokio::time::pause();
        IS_STOPPED.set(true);
        Self { _blocking: blocking }
    }

    /// Lets the clock run again.
    pub(crate) fn go_on(self) {
        drop(self);
    }

    /// Lets the tasks do everything that waits for no timer.
    pub(crate) async fn settle(&self) {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }

    /// Moves the clock forward.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::advance(time).await;
    }

    /// Moves the clock forward step by step until a result is there.
    pub(crate) async fn pass_until<T>(&self, step: Duration, result: impl Future<Output = T>) -> T {
        let mut result = pin!(result);
        loop {
            for _ in 0..TURNS {
                tokio::select! {
                    biased;
                    result = &mut result => return result,
                    () = tokio::task::yield_now() => {}
                }
            }
            self.pass(step).await;
        }
    }
}

impl Drop for StoppedClock {
    fn drop(&mut self) {
        IS_STOPPED.set(false);
        tokio::time::resume();
    }
}

/// Lets the other tasks run for a moment.
pub(crate) async fn moment() {
    if IS_STOPPED.get() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
