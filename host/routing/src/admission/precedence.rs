//! Held requests that go before another one, which is not in the queue: by class, by tenant, and by work.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use super::fair_queue::{Class, FairQueue};
use super::waiters::{Precedence, WorkerWaiter};
use crate::id::WorkerId;
use crate::number_map::NumberMap;

/// Class and service of a request that is not in the queue, which determine those that go before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RequestRank<'t> {
    /// Priority class.
    pub class: i32,
    /// Tenant.
    pub tenant: &'t str,
    /// Charge that its tenant has for it already. `None` before its first decision.
    pub charged: Option<f64>,
}

fn is_of(waiter: &WorkerWaiter, tenant: Option<&Arc<str>>) -> bool {
    tenant.is_some_and(|tenant| Arc::ptr_eq(tenant, &waiter.tenant))
}

impl<W> FairQueue<W> {
    /// Returns two numbers a worker: how many requests of the same or a higher class wait for it, and the work there of
    /// those that go before the request of that rank.
    ///
    /// Those are all of a higher class. Of the same class, they are those of the same tenant with at most `most` work
    /// at the worker, and those of another tenant that the fair queue serves until the tenants have the same service.
    #[must_use]
    pub fn ahead(&self, rank: &RequestRank<'_>, workers: &[WorkerId], most: &[u32]) -> Vec<u32> {
        if self.waiters.is_empty() {
            return vec![0; 2 * workers.len()];
        }
        let tenant = self.tenants.counted_name(rank.tenant);
        let class = self.classes.get(&Reverse(rank.class));
        let own = class.and_then(|class| class.queues.get_key_value(tenant));
        let own = own.map(|(tenant, _)| tenant);
        let mut own_share = 0.0;
        let mut ahead = self.waiters.ahead_by(workers, most, |waiter, most| {
            match waiter.class.cmp(&rank.class) {
                Ordering::Less => Precedence::Overtaken,
                Ordering::Greater => Precedence::Before,
                Ordering::Equal if is_of(waiter, own) && waiter.work <= most => {
                    own_share += waiter.share;
                    Precedence::Before
                }
                // Those of another tenant that go before are added below.
                Ordering::Equal => Precedence::After,
            }
        });
        let Some(class) = class.filter(|class| class.queues.len() > usize::from(own.is_some())) else {
            return ahead;
        };
        // The request is served after those of its tenant that go before it.
        let until = self.service(&RequestRank { tenant, ..*rank }, own.is_some()) + own_share;
        let before = class.work_before(own, until);
        for ((worker, _), two) in workers.iter().zip(most).zip(ahead.chunks_exact_mut(2)) {
            if let Some(work) = before.get(worker) {
                two[1] = two[1].saturating_add(*work);
            }
        }
        ahead
    }

    /// Returns the service of the request's tenant without the request. `is_queued`: the tenant has a queue in the
    /// class.
    fn service(&self, rank: &RequestRank<'_>, is_queued: bool) -> f64 {
        match rank.charged {
            Some(charged) => self.tenants.level(rank.tenant) - charged,
            // Only a tenant without a queue is raised when it gets one.
            None if is_queued => self.tenants.level(rank.tenant),
            None => self.tenants.raised_level(rank.tenant),
        }
    }
}

impl Class {
    /// Returns the work of the held requests of all tenants but `own` that are served until a tenant has that service,
    /// by the worker that they wait for.
    fn work_before(&self, own: Option<&Arc<str>>, until: f64) -> NumberMap<WorkerId, u32> {
        let mut before = NumberMap::default();
        let served = self
            .by_level
            .iter()
            .take_while(|((level, _), _)| level.0 <= until);
        let others = served.filter(|(_, tenant)| own != Some(tenant));
        for ranked in others.filter_map(|(_, tenant)| self.queues.get(tenant)) {
            for (worker, work) in ranked.queue.served_until(ranked.level(), until) {
                let there: &mut u32 = before.entry(worker).or_default();
                *there = there.saturating_add(work);
            }
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Held, Waiting};

    const A: WorkerId = WorkerId(1);
    const B: WorkerId = WorkerId(2);

    /// Creates a request that waits for a worker, in the order of its work.
    fn held(class: i32, tenant: &str, worker: WorkerId, work: u32) -> Waiting {
        Waiting {
            class,
            tenant: tenant.into(),
            share: work.into(),
            tokens: work.into(),
            work: work.into(),
            runs_us: 0,
            start_by_us: 0,
            held: Some(Held {
                order: work.into(),
                evaluated_at: Some(0),
                waits_for: Some((worker, work)),
            }),
        }
    }

    fn queue(requests: &[Waiting]) -> FairQueue<()> {
        let mut queue = FairQueue::default();
        for (number, one) in (0..).zip(requests) {
            queue.insert(number, one.clone(), ());
        }
        queue
    }

    fn rank(class: i32, tenant: &str) -> RequestRank<'_> {
        RequestRank {
            class,
            tenant,
            charged: None,
        }
    }

    #[test]
    fn lower_classes_are_not_ahead_and_higher_ones_are_whatever_their_work() {
        let queue = queue(&[
            held(-5, "", A, 1),
            held(0, "", A, 10),
            held(0, "", A, 99),
            held(7, "", A, 1_000),
            held(7, "", B, 2_000),
        ]);
        let ahead = |class| queue.ahead(&rank(class, ""), &[A, B], &[20, 20]);
        assert_eq!(ahead(-6), [4, 1_110, 1, 2_000]);
        assert_eq!(ahead(-5), [4, 1_110, 1, 2_000]);
        assert_eq!(ahead(0), [3, 1_010, 1, 2_000]);
        assert_eq!(ahead(7), [1, 0, 1, 0]);
        assert_eq!(ahead(8), [0; 4]);
    }

    #[test]
    fn requests_that_wait_for_no_worker_are_ahead_at_none() {
        let unheld = Waiting {
            held: None,
            ..held(7, "other", A, 10)
        };
        let mut anywhere = held(7, "other", A, 10);
        anywhere.held = anywhere.held.map(|held| Held {
            waits_for: None,
            ..held
        });
        let queue = queue(&[unheld, anywhere]);
        assert_eq!(queue.ahead(&rank(0, ""), &[A, B], &[20, 20]), [0; 4]);
    }

    #[test]
    fn of_another_tenant_as_much_is_ahead_as_the_fair_queue_serves_before() {
        let mut requests: Vec<_> = (0..10).map(|_| held(0, "heavy", A, 100)).collect();
        requests.push(held(0, "light", A, 50));
        requests.push(held(0, "light", B, 150));
        let mut queue = queue(&requests);
        let ahead = |queue: &FairQueue<()>, most| queue.ahead(&rank(0, "light"), &[A, B], &[most; 2]);
        // At the same service the tenant goes first that waits longer.
        assert_eq!(ahead(&queue, 40), [11, 100, 1, 0]);
        assert_eq!(ahead(&queue, 60), [11, 100 + 50, 1, 0]);
        assert_eq!(ahead(&queue, 200), [11, 300 + 50, 1, 150]);
        // The heavy tenant has been served before: it goes again when the light one has, too.
        queue.pass(&Arc::from("heavy"), 120.0);
        assert_eq!(ahead(&queue, 40), [11, 0, 1, 0]);
        assert_eq!(ahead(&queue, 200), [11, 100 + 50, 1, 150]);
        let heavy = queue.ahead(&rank(0, "heavy"), &[A, B], &[40; 2]);
        assert_eq!(heavy, [11, 50, 1, 150], "the others' longer ones, too");
    }

    #[test]
    fn a_request_that_is_charged_already_has_the_place_that_it_had_before() {
        let mut queue = queue(&[held(0, "heavy", A, 100), held(0, "heavy", A, 100)]);
        let light: Arc<str> = "light".into();
        queue.pass(&light, 150.0);
        let of = |charged| RequestRank {
            charged,
            ..rank(0, "light")
        };
        assert_eq!(queue.ahead(&of(None), &[A], &[u32::MAX]), [2, 200]);
        assert_eq!(queue.ahead(&of(Some(150.0)), &[A], &[u32::MAX]), [2, 100]);
    }

    #[test]
    fn requests_that_share_a_counter_are_of_one_tenant() {
        let mut queue = queue(&[]);
        for number in 0..4_096 {
            queue.pass(&format!("t{number}").into(), 5.0);
            queue.correct(&format!("t{number}").into(), 5.0);
        }
        for number in 0..3 {
            queue.insert(number, held(0, &format!("late{number}"), A, 10), ());
        }
        queue.insert(3, held(0, "t1", A, 100), ());
        assert_eq!(queue.ahead(&rank(0, "later"), &[A], &[10]), [4, 30 + 100]);
        assert_eq!(queue.ahead(&rank(0, "later"), &[A], &[9]), [4, 0]);
    }
}
