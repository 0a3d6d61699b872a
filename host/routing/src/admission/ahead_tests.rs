//! The requests ahead against the order in which the queue then serves, over random scripts.

use proptest::prelude::*;

use super::*;
use crate::id::WorkerId;

const WORKERS: [WorkerId; 2] = [WorkerId(1), WorkerId(2)];
/// Class of the request in question.
const CLASS: i32 = 0;

/// A held request. Its order is its work.
#[derive(Debug, Clone)]
struct Script {
    class: i32,
    tenant: u8,
    work: u32,
    share: u8,
    worker: usize,
}

impl Script {
    /// Creates the request. No two sums of charges are alike, so that tenants are never at the same service.
    fn waiting(&self, number: usize) -> Waiting {
        // Charges of higher classes are not predicted: these have tenants of their own.
        let kind = if self.class > CLASS { "high" } else { "t" };
        Waiting {
            class: self.class,
            tenant: format!("{kind}{}", self.tenant).into(),
            share: unlike(self.share, number),
            tokens: 1,
            work: self.work.into(),
            runs_us: 0,
            start_by_us: 0,
            held: Some(Held {
                order: self.work.into(),
                evaluated_at: Some(0),
                waits_for: Some((WORKERS[self.worker], self.work)),
            }),
        }
    }
}

/// Returns the charge with a fraction of its own, exactly.
fn unlike(share: u8, number: usize) -> f64 {
    f64::from(share) + (0..=number).fold(1.0, |fraction, _| fraction / 2.0)
}

fn script(class: impl Strategy<Value = i32>) -> impl Strategy<Value = Script> {
    let parts = (class, 0..4_u8, 1..20_u32, 0..30_u8, 0..2_usize);
    parts.prop_map(|(class, tenant, work, share, worker)| Script {
        class,
        tenant,
        work,
        share,
        worker,
    })
}

/// Serves until that request, and returns the numbers of `ahead`.
fn served_before(queue: &mut FairQueue<()>, number: u64) -> Vec<u32> {
    let mut before = vec![0; 2 * WORKERS.len()];
    let mut is_before = true;
    while let Some((first, _)) = queue.first(0, None, 1, Some(&CapacityEvent::anywhere())) {
        let (one, ()) = queue.serve(first).unwrap();
        is_before &= first != number;
        let (worker, work) = one.held.unwrap().waits_for.unwrap();
        let at = 2 * WORKERS.iter().position(|other| *other == worker).unwrap();
        before[at] += u32::from(first != number && one.class >= CLASS);
        before[at + 1] += if is_before { work } else { 0 };
    }
    before
}

proptest! {
    #[test]
    fn the_work_ahead_is_that_of_the_requests_that_are_served_before(
        waiting in prop::collection::vec(script(-1..2_i32), 0..30),
        probe in script(Just(CLASS)),
        served in any::<[u8; 4]>(),
        floor in any::<u8>(),
        is_charged in any::<bool>(),
    ) {
        let mut queue = FairQueue::default();
        for (tenant, share) in served.into_iter().enumerate() {
            queue.pass(&format!("t{tenant}").into(), unlike(share, 30 + tenant));
        }
        for (number, one) in waiting.iter().enumerate() {
            queue.insert(number as u64, one.waiting(number), ());
        }
        // The virtual time moves while they wait.
        for _ in 0..2 {
            queue.pass(&"busy".into(), unlike(floor, 35));
        }
        let asked = probe.waiting(36);
        if is_charged {
            queue.pass(&asked.tenant, asked.share);
        }
        let rank = RequestRank {
            class: CLASS,
            tenant: &asked.tenant,
            charged: is_charged.then_some(asked.share),
        };
        let ahead = queue.ahead(&rank, &WORKERS, &[probe.work; 2]);
        if is_charged {
            queue.correct(&asked.tenant, -asked.share);
        }
        queue.insert(100, asked.clone(), ());
        prop_assert_eq!(ahead, served_before(&mut queue, 100));
    }
}
