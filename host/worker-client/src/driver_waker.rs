//! Waker of a connection's driver: it wakes the task of the request, but not for what that task itself takes.
//!
//! The task of a request drives its connection and takes the frames of the body. Taking one wakes the driver, which
//! waits for room in the channel between them. The task polls the driver next anyway, so this wake-up would only poll
//! the whole request once more for each frame.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

thread_local! {
    /// Set while this thread takes from a driver's channel. All wake-ups of drivers on this thread come from there.
    static TAKES: Cell<bool> = const { Cell::new(false) };
}

/// Task that drives a connection at present.
#[derive(Debug, Default)]
struct DrivingTask(Mutex<Option<Waker>>);

/// Waker of one driver.
#[derive(Debug)]
pub(crate) struct DriverWaker {
    task: Arc<DrivingTask>,
    /// Waker that leads to the task.
    waker: Waker,
    /// Waker of the task.
    known: Option<Waker>,
}

impl Default for DriverWaker {
    fn default() -> Self {
        let task = Arc::<DrivingTask>::default();
        Self {
            waker: Waker::from(Arc::clone(&task)),
            task,
            known: None,
        }
    }
}

impl DriverWaker {
    /// Returns the context for a driver that this task polls.
    pub(crate) fn context(&mut self, cx: &Context<'_>) -> Context<'_> {
        let is_known = self
            .known
            .as_ref()
            .is_some_and(|known| known.will_wake(cx.waker()));
        if !is_known {
            *self.task.lock() = Some(cx.waker().clone());
            self.known = Some(cx.waker().clone());
        }
        Context::from_waker(&self.waker)
    }

    /// Lets go of the task: an idle connection has none, and would keep its memory.
    pub(crate) fn forget_task(&mut self) {
        self.known = None;
        *self.task.lock() = None;
    }
}

/// Takes from the channel of a driver that this task polls next, or that has nothing left to do.
pub(crate) fn take_quietly<T>(take: impl FnOnce() -> T) -> T {
    /// Ends the time without wake-ups, also after a panic.
    struct Taking;

    impl Drop for Taking {
        fn drop(&mut self) {
            TAKES.set(false);
        }
    }

    TAKES.set(true);
    let _taking = Taking;
    take()
}

impl DrivingTask {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for DrivingTask {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if TAKES.get() {
            return;
        }
        // Not woken under the lock.
        let task = self.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct CountedWaker(AtomicUsize);

    impl Wake for CountedWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_driver_wakes_the_last_task_that_polled_it_unless_that_takes_a_frame() {
        let (one, two) = (Arc::<CountedWaker>::default(), Arc::<CountedWaker>::default());
        let count = || (one.0.load(Ordering::Relaxed), two.0.load(Ordering::Relaxed));
        let mut driver = DriverWaker::default();
        let first = Waker::from(Arc::clone(&one));
        let waker = driver.context(&Context::from_waker(&first)).waker().clone();
        waker.wake_by_ref();
        assert_eq!(count(), (1, 0));
        take_quietly(|| waker.wake_by_ref());
        assert_eq!(count(), (1, 0));
        // A wake-up of the socket comes from another thread.
        take_quietly(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| waker.wake_by_ref());
            });
        });
        assert_eq!(count(), (2, 0));
        let second = Waker::from(Arc::clone(&two));
        let same = driver
            .context(&Context::from_waker(&second))
            .waker()
            .will_wake(&waker);
        assert!(same, "sockets keep their registration");
        waker.wake_by_ref();
        assert_eq!(count(), (2, 1));
        driver.forget_task();
        waker.wake();
        assert_eq!(count(), (2, 1));
        drop(second);
        assert_eq!(Arc::strong_count(&two), 1, "no task is kept");
    }
}
