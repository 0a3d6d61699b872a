//! Requests that other routers hold, added to the own ones.

use crate::id::WorkerId;
use crate::worker::Worker;

/// Adds the requests that other routers hold to the own numbers of [`WaitersByWorker::ahead`], two for each worker.
///
/// `workers` must have the workers in the order of `ids`; it may have more.
///
/// [`WaitersByWorker::ahead`]: crate::WaitersByWorker::ahead
pub fn add_held_elsewhere<'w>(
    ahead: &mut [u32],
    ids: &[WorkerId],
    most: &[u32],
    workers: impl Iterator<Item = &'w Worker>,
) {
    let mut workers = workers;
    for ((id, most), two) in ids.iter().zip(most).zip(ahead.chunks_exact_mut(2)) {
        let Some(worker) = workers.by_ref().find(|worker| worker.id() == *id) else {
            return;
        };
        if let Some(held) = worker.load().others().held() {
            let work = u32::try_from(held.work_up_to(*most)).unwrap_or(u32::MAX);
            two[0] = two[0].saturating_add(held.requests());
            two[1] = two[1].saturating_add(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::HeldSummary;
    use crate::worker::WorkerSpec;

    #[test]
    fn requests_held_elsewhere_are_added_to_the_own_numbers() {
        let workers: Vec<Worker> = (0..3)
            .map(|at| {
                let name: Box<str> = format!("w{at}").into();
                Worker::new(WorkerId(at), WorkerSpec::mixed(name.clone(), name))
            })
            .collect();
        let mut held = HeldSummary::default();
        held.add(100, 1.0);
        workers[2].load().others().set_held(&held);
        let mut ahead = [1, 5, 0, 0];
        add_held_elsewhere(&mut ahead, &[WorkerId(0), WorkerId(2)], &[9, 256], workers.iter());
        assert_eq!(ahead, [1, 5, 1, 100]);
    }
}
