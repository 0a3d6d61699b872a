//! Which worker each held request waits for, and how much work waits for each.

use std::collections::HashMap;

use crate::id::WorkerId;

/// Held requests by the worker they wait for. Each has a number of the caller's.
#[derive(Debug, Default)]
pub struct Aims {
    by_worker: HashMap<WorkerId, Vec<Aim>>,
}

#[derive(Debug, Clone, Copy)]
struct Aim {
    number: u64,
    work: u32,
}

impl Aims {
    /// A request that waits for none so far waits for that worker, where it is so much work.
    pub fn insert(&mut self, worker: WorkerId, number: u64, work: u32) {
        self.by_worker
            .entry(worker)
            .or_default()
            .push(Aim { number, work });
    }

    /// A request does not wait for that worker any more.
    pub fn remove(&mut self, worker: WorkerId, number: u64) {
        let Some(aims) = self.by_worker.get_mut(&worker) else {
            return;
        };
        if let Some(at) = aims.iter().position(|aim| aim.number == number) {
            aims.swap_remove(at);
        }
        if aims.is_empty() {
            self.by_worker.remove(&worker);
        }
    }

    /// For each worker, how many wait for it, and the work of those among them that are at most so much there: two numbers a worker.
    /// A worker without a number has zeros.
    #[must_use]
    pub fn ahead(&self, workers: &[WorkerId], most: &[u32]) -> Vec<u32> {
        let mut ahead = vec![0; 2 * workers.len()];
        if self.by_worker.is_empty() {
            return ahead;
        }
        for ((worker, most), two) in workers.iter().zip(most).zip(ahead.chunks_exact_mut(2)) {
            let aims = self.by_worker.get(worker).into_iter().flatten();
            for aim in aims {
                two[0] += 1;
                if aim.work <= *most {
                    two[1] = two[1].saturating_add(aim.work);
                }
            }
        }
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: WorkerId = WorkerId(1);
    const B: WorkerId = WorkerId(2);

    #[test]
    fn the_work_that_waits_for_a_worker_is_that_of_those_who_are_no_longer() {
        let mut aims = Aims::default();
        aims.insert(A, 1, 10);
        aims.insert(A, 2, 20);
        aims.insert(B, 3, 5);
        assert_eq!(aims.ahead(&[B, A], &[4, 10]), [1, 0, 2, 10]);
        assert_eq!(aims.ahead(&[B, A], &[5, 20]), [1, 5, 2, 30]);
        assert_eq!(
            aims.ahead(&[B, A], &[9]),
            [1, 5, 0, 0],
            "no number for the second"
        );
    }

    #[test]
    fn who_has_left_is_not_counted_and_nothing_of_it_is_kept() {
        let mut aims = Aims::default();
        aims.insert(A, 1, 10);
        aims.insert(A, 2, u32::MAX);
        assert_eq!(aims.ahead(&[A], &[u32::MAX]), [2, u32::MAX]);
        aims.remove(A, 2);
        aims.remove(B, 1);
        assert_eq!(aims.ahead(&[A], &[u32::MAX]), [1, 10]);
        aims.remove(A, 1);
        assert!(aims.by_worker.is_empty());
    }
}
