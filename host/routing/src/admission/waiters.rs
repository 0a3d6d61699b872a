//! Held requests by the worker that they wait for, and their work there.

use std::sync::Arc;

use super::held_summary::HeldSummary;
use crate::id::WorkerId;
use crate::number_map::NumberMap;

/// Held requests by the worker that they wait for. Each has a number of the caller's.
#[derive(Debug, Default)]
pub struct WaitersByWorker {
    by_worker: NumberMap<WorkerId, Vec<WorkerWaiter>>,
}

/// A held request that waits for a worker. The default is of class 0 and of no tenant.
#[derive(Debug, Clone, Default)]
pub struct WorkerWaiter {
    /// Number of the caller's.
    pub number: u64,
    /// Work at the worker, in the policy's unit.
    pub work: u32,
    /// The policy's order.
    pub order: f64,
    /// Priority class.
    pub class: i32,
    /// Tenant. In a [`FairQueue`](super::FairQueue), those of one class and tenant share one `Arc`.
    pub tenant: Arc<str>,
    /// Charge of its tenant.
    pub share: f64,
}

/// Place of a held request in the queue, with regard to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precedence {
    /// Before the other request.
    Before,
    /// After the other request, and of no lower class.
    After,
    /// Of a lower class.
    Overtaken,
}

impl WaitersByWorker {
    /// Returns `true` if no request waits for a worker.
    pub(super) fn is_empty(&self) -> bool {
        self.by_worker.is_empty()
    }

    /// Adds a request that waits for a worker.
    pub fn insert(&mut self, worker: WorkerId, waiter: WorkerWaiter) {
        self.by_worker.entry(worker).or_default().push(waiter);
    }

    /// Removes a request from those that wait for a worker.
    pub fn remove(&mut self, worker: WorkerId, number: u64) {
        let Some(waiters) = self.by_worker.get_mut(&worker) else {
            return;
        };
        if let Some(at) = waiters.iter().position(|waiter| waiter.number == number) {
            waiters.swap_remove(at);
        }
        if waiters.is_empty() {
            self.by_worker.remove(&worker);
        }
    }

    /// Returns two numbers a worker: how many requests wait for it, and the work of those with at most `most` work
    /// there. A worker without a number has zeros. All requests are taken to be of one class and one tenant.
    #[must_use]
    pub fn ahead(&self, workers: &[WorkerId], most: &[u32]) -> Vec<u32> {
        self.ahead_by(workers, most, |waiter, most| match waiter.work <= most {
            true => Precedence::Before,
            false => Precedence::After,
        })
    }

    /// Returns two numbers a worker: how many requests wait for it and are not overtaken, and the work of those that go
    /// before. `precedence` gets each request that waits for a worker, with the worker's number in `most`.
    pub(super) fn ahead_by(
        &self,
        workers: &[WorkerId],
        most: &[u32],
        mut precedence: impl FnMut(&WorkerWaiter, u32) -> Precedence,
    ) -> Vec<u32> {
        let mut ahead = vec![0; 2 * workers.len()];
        if self.is_empty() {
            return ahead;
        }
        for ((worker, most), two) in workers.iter().zip(most).zip(ahead.chunks_exact_mut(2)) {
            for waiter in self.of(*worker) {
                let place = precedence(waiter, *most);
                two[0] += u32::from(place != Precedence::Overtaken);
                if place == Precedence::Before {
                    two[1] = two[1].saturating_add(waiter.work);
                }
            }
        }
        ahead
    }

    /// Returns the requests that wait for a worker.
    pub(super) fn of(&self, worker: WorkerId) -> &[WorkerWaiter] {
        self.by_worker.get(&worker).map(Vec::as_slice).unwrap_or_default()
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
            ..WorkerWaiter::default()
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
        assert!(waiters.is_empty());
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
