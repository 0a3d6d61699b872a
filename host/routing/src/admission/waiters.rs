//! Held requests by the worker that they wait for, and their work there.

use super::held_summary::HeldSummary;
use crate::id::WorkerId;
use crate::number_map::NumberMap;

/// Held requests by the worker that they wait for. Each has a number of the caller's.
#[derive(Debug, Default)]
pub struct WaitersByWorker {
    by_worker: NumberMap<WorkerId, Vec<WorkerWaiter>>,
}

/// A held request that waits for a worker.
#[derive(Debug, Clone, Copy)]
pub struct WorkerWaiter {
    /// Number of the caller's.
    pub number: u64,
    /// Work at the worker, in the policy's unit.
    pub work: u32,
    /// The policy's order.
    pub order: f64,
}

impl WaitersByWorker {
    /// Adds a request that waits for a worker.
    pub fn insert(&mut self, worker: WorkerId, waiter: WorkerWaiter) {
        self.by_worker.entry(worker).or_default().push(waiter);
    }

    /// Removes a request from those that wait for a worker.
    pub fn remove(&mut self, worker: WorkerId, number: u64) {
        let Some(waiters) = self.by_worker.get_mut(&worker) else {
            return;
        };
        if let Some(at) = waiters.iter().position(|worker| worker.number == number) {
            waiters.swap_remove(at);
        }
        if waiters.is_empty() {
            self.by_worker.remove(&worker);
        }
    }

    /// Returns two numbers a worker: how many requests wait for it, and the work of those with at most `most` work
    /// there. A worker without a number has zeros.
    #[must_use]
    pub fn ahead(&self, workers: &[WorkerId], most: &[u32]) -> Vec<u32> {
        let mut ahead = vec![0; 2 * workers.len()];
        if self.by_worker.is_empty() {
            return ahead;
        }
        for ((worker, most), two) in workers.iter().zip(most).zip(ahead.chunks_exact_mut(2)) {
            let waiters = self.by_worker.get(worker).into_iter().flatten();
            for worker in waiters {
                two[0] += 1;
                if worker.work <= *most {
                    two[1] = two[1].saturating_add(worker.work);
                }
            }
        }
        ahead
    }

    /// Calls `visit` with each worker that requests wait for, and their summary.
    pub fn summarize(&self, mut visit: impl FnMut(WorkerId, &HeldSummary)) {
        for (worker, waiters) in &self.by_worker {
            let mut held = HeldSummary::default();
            waiters
                .iter()
                .for_each(|waiter| held.add(waiter.work, waiter.order));
            visit(*worker, &held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: WorkerId = WorkerId(1);
    const B: WorkerId = WorkerId(2);

    fn waiter(number: u64, work: u32) -> WorkerWaiter {
        WorkerWaiter {
            number,
            work,
            order: f64::from(work),
        }
    }

    #[test]
    fn the_work_ahead_is_that_of_requests_with_at_most_so_much_work() {
        let mut waiters = WaitersByWorker::default();
        waiters.insert(A, waiter(1, 10));
        waiters.insert(A, waiter(2, 20));
        waiters.insert(B, waiter(3, 5));
        assert_eq!(waiters.ahead(&[B, A], &[4, 10]), [1, 0, 2, 10]);
        assert_eq!(waiters.ahead(&[B, A], &[5, 20]), [1, 5, 2, 30]);
        assert_eq!(
            waiters.ahead(&[B, A], &[9]),
            [1, 5, 0, 0],
            "no number for the second"
        );
    }

    #[test]
    fn a_removed_request_is_not_counted_and_leaves_nothing() {
        let mut waiters = WaitersByWorker::default();
        waiters.insert(A, waiter(1, 10));
        waiters.insert(A, waiter(2, u32::MAX));
        assert_eq!(waiters.ahead(&[A], &[u32::MAX]), [2, u32::MAX]);
        waiters.remove(A, 2);
        waiters.remove(B, 1);
        assert_eq!(waiters.ahead(&[A], &[u32::MAX]), [1, 10]);
        waiters.remove(A, 1);
        assert!(waiters.by_worker.is_empty());
    }

    #[test]
    fn the_summary_has_every_worker_that_requests_wait_for() {
        let mut waiters = WaitersByWorker::default();
        waiters.insert(A, waiter(1, 10));
        waiters.insert(A, waiter(2, 20));
        waiters.insert(B, waiter(3, 5_000));
        let mut seen = Vec::new();
        waiters.summarize(|worker, held| seen.push((worker, held.requests(), held.first_order())));
        seen.sort_unstable_by_key(|(worker, ..)| *worker);
        assert_eq!(seen, [(A, 2, 10.0), (B, 1, 5_000.0)]);
    }
}
