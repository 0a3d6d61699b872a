//! Pace at which the requests of a burst start: a few between two polls of the sockets by the runtime.
//!
//! When many requests arrive at once, a runtime that runs tasks in the order of their wake-up decides them all before
//! it reads the first answer. Each first token then waits for every other request. With a few starts between polls,
//! answers that have come are relayed before the next requests start. The order of starts is that of arrival.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio_util::task::TaskTracker;

use crate::tasks;

/// Starts on a thread between two polls of its sockets.
const STARTS: usize = 4;

/// Start pace of all requests, with a quota for each thread of the runtime.
#[derive(Debug)]
pub(crate) struct StartPace {
    refills: TaskTracker,
    quotas: Box<[Arc<StartQuota>]>,
}

/// Starts that a thread has left until its next poll.
#[derive(Debug)]
struct StartQuota {
    starts: Semaphore,
    /// Set while a task waits for the next poll.
    is_refilling: AtomicBool,
}

thread_local! {
    /// Number of the thread, which chooses its quota.
    static THREAD: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
}

impl StartPace {
    /// Creates the pace of this runtime's threads. `refills` tracks its tasks.
    pub(crate) fn new(refills: TaskTracker) -> Self {
        // Only tests create a proxy outside a runtime.
        let threads = Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers());
        let quota = || {
            Arc::new(StartQuota {
                starts: Semaphore::new(STARTS),
                is_refilling: AtomicBool::new(false),
            })
        };
        Self {
            refills,
            quotas: (0..threads).map(|_| quota()).collect(),
        }
    }

    /// Returns when the request may start: at once, or after one of the next polls of the sockets.
    pub(crate) async fn start(&self) {
        let quota = &self.quotas[THREAD.with(|thread| *thread) % self.quotas.len()];
        // The semaphore is never closed.
        if let Ok(start) = quota.starts.acquire().await {
            start.forget();
        }
        if quota.starts.available_permits() == 0 && !quota.is_refilling.swap(true, Ordering::AcqRel) {
            tasks::spawn(&self.refills, "starts", refill(Arc::clone(quota)));
        }
    }
}

/// Allows further starts after the next poll of the sockets: the runtime wakes tasks that yield after it.
async fn refill(quota: Arc<StartQuota>) {
    yield_now().await;
    quota.is_refilling.store(false, Ordering::Release);
    let left = quota.starts.available_permits();
    quota.starts.add_permits(STARTS.saturating_sub(left));
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn only_a_few_requests_start_between_two_polls() {
        let pace = StartPace::new(TaskTracker::new());
        for start in 0..STARTS {
            assert_eq!(pace.start().now_or_never(), Some(()), "{start}");
        }
        assert_eq!(pace.start().now_or_never(), None);
        // The runtime polls sockets meanwhile.
        pace.start().await;
    }

    #[tokio::test]
    async fn requests_start_in_the_order_of_arrival() {
        let pace = StartPace::new(TaskTracker::new());
        let order = Mutex::new(Vec::new());
        let requests = 0..10 * STARTS;
        let starts = requests.clone().map(|request| {
            let (pace, order) = (&pace, &order);
            async move {
                pace.start().await;
                order.lock().unwrap().push(request);
            }
        });
        futures_util::future::join_all(starts).await;
        assert!(order.into_inner().unwrap().into_iter().eq(requests));
    }

    #[tokio::test]
    async fn clients_that_leave_take_no_start() {
        let pace = StartPace::new(TaskTracker::new());
        let mut waiting: Vec<_> = (0..5 * STARTS).map(|_| Box::pin(pace.start())).collect();
        for start in &mut waiting {
            let _ = start.now_or_never();
        }
        drop(waiting);
        for _ in 0..2 * STARTS {
            pace.start().await;
        }
    }
}
