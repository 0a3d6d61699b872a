//! The queue against a naive model, and what budgets and fairness promise, over random scripts.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::id::WorkerId;

const NEVER: u64 = u64::MAX;

fn waiting(class: i32, tenant: &str, work: u64) -> Waiting {
    Waiting {
        class,
        tenant: tenant.into(),
        share: work as f64,
        tokens: work,
        work,
        runs_us: 0,
        start_by_us: NEVER,
        held: None,
    }
}

/// Naive model of the queue's order, which looks at every request each time.
#[derive(Default)]
struct Naive {
    waiting: Vec<(u64, Waiting)>,
    levels: Vec<(Arc<str>, f64)>,
    floor: f64,
    /// The first request of each tenant of a class.
    since: Vec<((i32, Arc<str>), u64)>,
    /// Requests that a sweep has not reached, and whether one is decided for it.
    marked: Vec<u64>,
    is_deciding: bool,
}

impl Naive {
    fn level(&mut self, tenant: &Arc<str>) -> &mut f64 {
        let at = self.levels.iter().position(|(name, _)| name == tenant);
        let at = at.unwrap_or_else(|| {
            self.levels.push((Arc::clone(tenant), self.floor));
            self.levels.len() - 1
        });
        &mut self.levels[at].1
    }

    fn insert(&mut self, number: u64, one: Waiting) {
        let is_new = |(_, other): &(u64, Waiting)| other.class != one.class || other.tenant != one.tenant;
        if self.waiting.iter().all(is_new) {
            let floor = self.floor;
            let level = self.level(&one.tenant);
            *level = level.max(floor);
        }
        self.put_back(number, one);
    }

    fn put_back(&mut self, number: u64, one: Waiting) {
        let is_new = |(_, other): &(u64, Waiting)| other.class != one.class || other.tenant != one.tenant;
        if self.waiting.iter().all(is_new) {
            let key = (one.class, Arc::clone(&one.tenant));
            self.since.retain(|(other, _)| *other != key);
            self.since.push((key, number));
        }
        self.waiting.push((number, one));
    }

    fn first(
        &mut self,
        now: u64,
        step: Option<u64>,
        releases: u64,
        release: Option<&CapacityEvent>,
    ) -> Option<u64> {
        let may = |one: &Waiting| match one.held {
            Some(Held {
                evaluated_at: Some(at),
                ..
            }) => release.is_some_and(|release| release.has_budget(one.awaited_worker())) && at < releases,
            _ => true,
        };
        let is_swept = |number: &u64| !self.is_deciding && self.marked.contains(number);
        let mut able: Vec<(u64, Waiting)> = self.waiting.clone();
        able.retain(|(number, one)| may(one) || is_swept(number));
        let class = able.iter().map(|(_, one)| one.class).max()?;
        able.retain(|(_, one)| one.class == class);
        let mut tenants: Vec<Arc<str>> = able.iter().map(|(_, one)| Arc::clone(&one.tenant)).collect();
        tenants.sort();
        tenants.dedup();
        let firsts = tenants.into_iter().map(|tenant| {
            let of_tenant = able.iter().filter(|(_, one)| one.tenant == tenant);
            let number = first_of(&of_tenant.cloned().collect::<Vec<_>>(), now, step);
            let since = self
                .since
                .iter()
                .find(|(key, _)| *key == (class, Arc::clone(&tenant)));
            let since = since.unwrap().1;
            (*self.level(&tenant), since, number)
        });
        let firsts: Vec<_> = firsts.collect();
        let least = firsts
            .into_iter()
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        least.map(|(.., number)| number)
    }

    fn begin_sweep(&mut self) {
        let held = self.waiting.iter().filter(|(_, one)| one.held.is_some());
        self.marked = held.map(|(number, _)| *number).collect();
    }

    fn begin_sweep_decision(&mut self, number: u64) -> bool {
        let begins = !self.is_deciding && self.marked.contains(&number);
        self.is_deciding |= begins;
        begins
    }

    fn remove(&mut self, at: usize) -> (u64, Waiting) {
        let (number, one) = self.waiting.remove(at);
        self.marked.retain(|marked| *marked != number);
        (number, one)
    }

    fn serve(&mut self, number: u64) {
        let at = self
            .waiting
            .iter()
            .position(|(other, _)| *other == number)
            .unwrap();
        let (_, one) = self.remove(at);
        let level = self.level(&one.tenant);
        let before = *level;
        *level += one.share;
        if one.held.is_none() {
            self.floor = self.floor.max(before);
        }
    }
}

fn first_of(queue: &[(u64, Waiting)], now: u64, step: Option<u64>) -> u64 {
    let held = queue
        .iter()
        .filter_map(|(number, one)| Some((one.held?.order, *number)));
    if let Some((_, number)) = held.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))) {
        return number;
    }
    let in_time = || queue.iter().filter(|(_, one)| one.start_by_us >= now);
    let Some((shortest, of_shortest)) = in_time().min_by_key(|(number, one)| (one.work, *number)) else {
        return queue.iter().map(|(number, _)| *number).min().unwrap();
    };
    let (urgent, of_urgent) = in_time()
        .min_by_key(|(number, one)| (one.start_by_us, *number))
        .unwrap();
    let step = step.unwrap_or(of_shortest.runs_us);
    if of_urgent.start_by_us < now + step {
        *urgent
    } else {
        *shortest
    }
}

#[derive(Debug, Clone)]
enum Act {
    Come {
        class: i32,
        tenant: u8,
        work: u64,
        patience: Option<u64>,
        /// Order of a held request, with the worker it waits for.
        order: Option<(i8, Option<u32>)>,
    },
    Leave(usize),
    CapacityEvent,
    Serve {
        step: Option<u64>,
        /// The worker of an event, and the kinds without budget left.
        release: Option<(Option<u32>, Vec<Option<u32>>)>,
    },
    Due(usize),
    Pass(u64),
    Sweep,
    EndSweepDecision,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let come = (
        -2..3_i32,
        0..3_u8,
        1..20_u64,
        prop::option::of(0..60_u64),
        prop::option::weighted(0.4, (-2..3_i8, prop::option::of(0..3_u32))),
    );
    let come = come.prop_map(|(class, tenant, work, patience, order)| Act::Come {
        class,
        tenant,
        work,
        patience,
        order,
    });
    let evaluated = prop::collection::vec(prop::option::of(0..3_u32), 0..20);
    let release = prop::option::of((prop::option::of(0..3_u32), evaluated));
    let serve = (prop::option::of(0..20_u64), release);
    let serve = serve.prop_map(|(step, release)| Act::Serve { step, release });
    let act = prop_oneof![
        5 => come,
        1 => (0..50_usize).prop_map(Act::Leave),
        1 => Just(Act::CapacityEvent),
        4 => serve,
        1 => (0..50_usize).prop_map(Act::Due),
        5 => (0..9_u64).prop_map(Act::Pass),
        1 => Just(Act::Sweep),
        2 => Just(Act::EndSweepDecision),
    ];
    prop::collection::vec(act, 1..200)
}

/// Plays a script on both; the queue ends empty when it is served on.
fn play(acts: Vec<Act>) {
    let (mut queue, mut naive) = (FairQueue::default(), Naive::default());
    let (mut now, mut releases) = (0_u64, 0_u64);
    for (number, act) in (0_u64..).zip(acts) {
        match act {
            Act::Come {
                class,
                tenant,
                work,
                patience,
                order,
            } => {
                let held = order.map(|(order, worker)| Held {
                    order: order.into(),
                    evaluated_at: Some(releases),
                    waits_for: worker.map(|worker| (WorkerId(worker), 1)),
                });
                let one = Waiting {
                    start_by_us: patience.map_or(NEVER, |patience| now + patience),
                    runs_us: work,
                    held,
                    ..waiting(class, &format!("t{tenant}"), work)
                };
                queue.insert(number, one.clone(), number);
                naive.insert(number, one);
            }
            Act::Leave(at) if at < naive.waiting.len() => {
                let (number, _) = naive.remove(at);
                assert_eq!(queue.remove(number).unwrap().1, number);
            }
            Act::Due(at) if at < naive.waiting.len() => {
                let (number, mut one) = naive.remove(at);
                if let Some(held) = &mut one.held {
                    held.evaluated_at = None;
                }
                naive.put_back(number, one);
                queue.make_due(number);
            }
            Act::CapacityEvent => releases += 1,
            Act::Serve { step, release } => {
                let release = release.map(|(worker, evaluated)| {
                    let mut release = worker.map_or_else(CapacityEvent::anywhere, |worker| {
                        CapacityEvent::at(WorkerId(worker))
                    });
                    evaluated
                        .into_iter()
                        .for_each(|worker| release.spend(worker.map(WorkerId)));
                    release
                });
                let first = queue.first(now, step, releases, release.as_ref());
                let first = first.map(|(number, _)| number);
                assert_eq!(first, naive.first(now, step, releases, release.as_ref()));
                if let Some(number) = first {
                    assert_eq!(
                        queue.begin_sweep_decision(number),
                        naive.begin_sweep_decision(number)
                    );
                    assert_eq!(queue.serve(number).unwrap().1, number);
                    naive.serve(number);
                }
            }
            Act::Pass(time) => now += time,
            Act::Sweep => {
                queue.begin_sweep();
                naive.begin_sweep();
            }
            Act::EndSweepDecision => {
                queue.end_sweep_decision();
                naive.is_deciding = false;
            }
            _ => {}
        }
        assert_eq!(queue.len(), naive.waiting.len());
        assert_eq!(queue.counts().iter().sum::<usize>(), queue.len());
    }
    releases += 1;
    while let Some((number, _)) = queue.first(now, None, releases, Some(&CapacityEvent::anywhere())) {
        queue.serve(number).unwrap();
    }
    assert!(queue.is_empty(), "everybody is served in the end");
}

#[test]
fn decisions_that_hold_a_request_again_are_no_service() {
    let mut queue = FairQueue::default();
    let held = |tenant, work| Waiting {
        held: Some(Held {
            order: 0.0,
            evaluated_at: Some(0),
            waits_for: None,
        }),
        ..waiting(0, tenant, work)
    };
    queue.pass(&"heavy".into(), 10_000.0);
    queue.insert(1, held("heavy", 10), ());
    queue.insert(2, held("light", 10), ());
    let anywhere = CapacityEvent::anywhere();
    for _ in 0..3 {
        for (expected, tenant) in [(2, "light"), (1, "heavy")] {
            let (number, _) = queue.first(0, None, 1, Some(&anywhere)).unwrap();
            assert_eq!(number, expected, "the tenant with the least service first");
            let (one, ()) = queue.serve(number).unwrap();
            queue.correct(&tenant.into(), -one.share);
            let again = Waiting {
                held: one.held.map(|held| Held {
                    evaluated_at: Some(1),
                    ..held
                }),
                ..one
            };
            queue.put_back(number, again, ());
        }
        for number in [1, 2] {
            queue.make_due(number);
        }
    }
    // The light tenant is served: the virtual time follows, and an idle tenant begins there.
    queue.serve(2).unwrap();
    queue.decided("light", 10.0);
    queue.insert(3, waiting(0, "idle", 10), ());
    let mut levels = Vec::new();
    queue.visit_tenants(|tenant| levels.push((tenant.tenant.to_string(), tenant.share)));
    assert!(levels.contains(&("light".to_owned(), 10.0)), "{levels:?}");
}

/// Returns the widest gap between two tenants with requests of these sizes always waiting.
fn widest_gap(sizes: &[(u8, u16)], weights: [f64; 2]) -> f64 {
    let mut queue = FairQueue::default();
    let names = ["a", "b"];
    let mut served = [0.0_f64; 2];
    let mut widest = 0.0_f64;
    let come = |queue: &mut FairQueue<u8>, number: u64, tenant: u8, size: u16| {
        let share = f64::from(size) / weights[usize::from(tenant)];
        let one = Waiting {
            share,
            ..waiting(0, names[usize::from(tenant)], size.into())
        };
        queue.insert(number, one, tenant);
    };
    come(&mut queue, 0, 0, 1);
    come(&mut queue, 1, 1, 1);
    for (number, (_, size)) in (2..).zip(sizes) {
        let (first, _) = queue.first(0, None, 0, None).unwrap();
        let (one, tenant) = queue.serve(first).unwrap();
        served[usize::from(tenant)] += one.share;
        widest = widest.max((served[0] - served[1]).abs());
        // A tenant that was served comes again: both always wait.
        come(&mut queue, number, tenant, *size);
    }
    widest
}

proptest! {
    #[test]
    fn the_order_is_that_of_the_naive_model(acts in acts()) {
        play(acts);
    }

    #[test]
    fn tenants_that_wait_are_never_further_apart_than_one_request_of_each(
        sizes in prop::collection::vec((0..2_u8, 1..500_u16), 1..200),
        weight in 0.1..10.0_f64,
    ) {
        let most = sizes.iter().map(|(_, size)| *size).max().unwrap_or(1).max(1);
        let bound = f64::from(most) + f64::from(most) / weight;
        prop_assert!(widest_gap(&sizes, [1.0, weight]) <= bound + 1e-6);
    }

    #[test]
    fn a_budget_is_never_exceeded_nor_leaked(
        limits in (1..5_u64, 1..100_u64),
        acts in prop::collection::vec((any::<bool>(), 1..60_u64), 1..200),
    ) {
        let budget = Budget::new(BudgetLimits { requests: Some(limits.0), tokens: Some(limits.1) });
        let mut taken: Vec<u64> = Vec::new();
        for (comes, tokens) in acts {
            let sum: u64 = taken.iter().sum();
            if comes {
                let fits = (taken.len() as u64) < limits.0 && (sum + tokens <= limits.1 || sum == 0);
                prop_assert_eq!(budget.take(tokens), fits);
                if fits {
                    taken.push(tokens);
                }
            } else if let Some(tokens) = taken.pop() {
                budget.give(tokens);
            }
            let used = budget.used();
            prop_assert_eq!((used.requests, used.tokens), (taken.len() as u64, taken.iter().sum()));
        }
        for tokens in taken {
            budget.give(tokens);
        }
        prop_assert_eq!(budget.used(), BudgetUse::default());
    }
}

#[test]
fn the_shortest_goes_first_unless_another_would_come_too_late_and_the_late_go_last() {
    let mut queue = FairQueue::default();
    let of = |work, start_by_us| Waiting {
        start_by_us,
        runs_us: 10,
        ..waiting(0, "", work)
    };
    queue.insert(0, of(90, 105), "urgent");
    queue.insert(1, of(1, 50), "late");
    queue.insert(2, of(5, NEVER), "short");
    queue.insert(3, of(7, NEVER), "longer");
    let mut next = |now| {
        let (number, _) = queue.first(now, None, 0, None)?;
        Some(queue.serve(number)?.1)
    };
    assert_eq!(
        next(95),
        Some("short"),
        "in 10 us the urgent one is still in time"
    );
    assert_eq!(next(96), Some("urgent"));
    assert_eq!(next(96), Some("longer"));
    assert_eq!(next(96), Some("late"));
    assert_eq!(next(96), None);
}

#[test]
fn the_last_of_the_least_important_class_makes_room_and_only_where_it_may_be_shed() {
    let mut queue = FairQueue::default();
    for (number, class) in [(0, 0), (1, -1), (2, -3), (3, -3)] {
        queue.insert(number, waiting(class, "", 1), ());
    }
    assert_eq!(queue.victim(0), Some(3));
    assert_eq!(queue.victim(-2), Some(3));
    assert_eq!(queue.victim(-3), None);
    for number in [1, 2, 3] {
        queue.remove(number);
    }
    assert_eq!(queue.victim(100), None, "class 0 is not shed");
    assert_eq!(queue.counts(), [0, 1, 0]);
    assert_eq!((queue.ahead_of(0), queue.ahead_of(1)), (1, 0));
}

#[test]
fn a_release_up_to_an_order_leaves_later_requests_in_the_queue() {
    let mut queue = FairQueue::default();
    let held = |order: f64| Waiting {
        held: Some(Held {
            order,
            evaluated_at: Some(0),
            waits_for: Some((WorkerId(1), 1)),
        }),
        ..waiting(0, "", 1)
    };
    for (number, order) in [(1, 5.0), (2, 3.0)] {
        queue.insert(number, held(order), number);
    }
    let release = |order| CapacityEvent::at(WorkerId(1)).up_to(order);
    let mut first = |order| {
        queue
            .first(0, None, 1, Some(&release(order)))
            .map(|(number, _)| number)
    };
    assert_eq!(first(2.0), None, "another router holds an earlier one");
    assert_eq!(first(4.0), Some(2));
    queue.serve(2);
    let mut first = |order| {
        queue
            .first(0, None, 1, Some(&release(order)))
            .map(|(number, _)| number)
    };
    assert_eq!((first(4.0), first(f64::INFINITY)), (None, Some(1)));
}
