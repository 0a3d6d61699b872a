//! Limits and budgets that several routers share.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use replica_plane::UsageGroup;
use replicas::{UsageChange, UsageReading};
use routing::BudgetUse;

use crate::bus::Hub;
use crate::{Router, pass};

/// Use of one counter (name 0) and one gauge (name 1), here and elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    own: [u64; 2],
    elsewhere: [i64; 2],
    level: u64,
    pub(crate) divisor: u32,
}

pub(crate) struct LimitGroup(pub(crate) Arc<Mutex<Limits>>);

impl UsageGroup for LimitGroup {
    fn group(&self) -> u64 {
        1
    }

    fn visit(&mut self, visit: &mut dyn FnMut(u64, UsageReading)) {
        let own = self.0.lock().unwrap().own;
        let (total, level) = (own[0], own[0]);
        let life = 0;
        visit(0, UsageReading::Counter { total, level, life });
        visit(1, UsageReading::Gauge(own[1]));
    }

    fn apply(&mut self, name: u64, change: UsageChange) {
        let mut limits = self.0.lock().unwrap();
        match change {
            UsageChange::Used(more) => limits.elsewhere[name as usize] += more,
            UsageChange::Gauge(sum) => limits.elsewhere[name as usize] = sum.cast_signed(),
            UsageChange::Level(level) => limits.level = limits.level.max(level),
            UsageChange::Known(_) => {}
        }
    }

    fn divide(&self, routers: NonZeroU32) {
        self.0.lock().unwrap().divisor = routers.get();
    }
}

impl Router {
    pub(crate) fn used(&self, counter: u64, gauge: u64) {
        self.pool.limits.lock().unwrap().own = [counter, gauge];
    }

    pub(crate) fn elsewhere(&self) -> [i64; 2] {
        self.pool.limits.lock().unwrap().elsewhere
    }

    fn divisor(&self) -> u32 {
        self.pool.limits.lock().unwrap().divisor
    }
}

#[tokio::test(start_paused = true)]
async fn usage_reaches_the_other_routers_and_a_new_one_begins_with_the_level() {
    let hub = Hub::default();
    let (one, two) = (Router::start(&hub, 1, 1), Router::start(&hub, 2, 1));
    pass(1_500).await;
    one.used(500, 3);
    two.used(20, 1);
    pass(200).await;
    assert_eq!((one.elsewhere(), two.elsewhere()), ([20, 1], [500, 3]));
    one.used(400, 0);
    pass(200).await;
    assert_eq!(two.elsewhere(), [400, 0], "a part was given back");
    let three = Router::start(&hub, 3, 1);
    pass(1_500).await;
    assert_eq!(
        (three.elsewhere(), three.pool.limits.lock().unwrap().level),
        ([0, 1], 400)
    );
    one.used(410, 0);
    pass(200).await;
    assert_eq!(three.elsewhere(), [10, 1]);
    assert_eq!([one.divisor(), two.divisor(), three.divisor()], [1; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_new_router_has_the_use_of_the_others_at_once() {
    let hub = Hub::default();
    let one = Router::start(&hub, 1, 1);
    pass(1_500).await;
    one.used(500, 3);
    pass(200).await;
    // The next repetition is 800 ms away.
    let two = Router::start(&hub, 2, 1);
    pass(110).await;
    let level = two.pool.limits.lock().unwrap().level;
    assert_eq!((level, two.elsewhere()), (500, [0, 3]));
}

#[tokio::test(start_paused = true)]
async fn use_that_comes_late_is_not_charged_at_once() {
    const STALL_MS: u64 = 25_000;
    const STEP_MS: u64 = 50;
    let hub = Hub::default();
    let (one, two) = (Router::start(&hub, 1, 1), Router::start(&hub, 2, 1));
    pass(1_500).await;
    hub.stall(true);
    // A limit that is used as it is refilled, so that its level stays the same.
    for used_ms in (STEP_MS..=STALL_MS).step_by(STEP_MS as usize) {
        one.used(used_ms, 0);
        pass(STEP_MS).await;
    }
    hub.stall(false);
    pass(2_500).await;
    let charged_ms = two.elsewhere()[0];
    assert!(charged_ms < 1_500 + 2 * STEP_MS.cast_signed(), "{charged_ms}");
    assert_eq!(two.pool.limits.lock().unwrap().level, STALL_MS);
    one.used(STALL_MS + STEP_MS, 0);
    pass(200).await;
    assert_eq!(
        two.elsewhere()[0],
        charged_ms + STEP_MS.cast_signed(),
        "it counts again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_router_that_lost_the_others_takes_its_share_of_limits_until_they_are_back() {
    let hub = Hub::default();
    let routers = [1, 2, 3].map(|router| Router::start(&hub, router, 1));
    pass(1_500).await;
    routers[0].used(100, 5);
    pass(1_000).await;
    assert_eq!(routers[1].elsewhere(), [100, 5]);
    hub.lose(true);
    pass(2_500).await;
    assert_eq!(routers.each_ref().map(Router::divisor), [3; 3]);
    assert_eq!(
        routers[1].elsewhere(),
        [100, 0],
        "what is in use there is not known"
    );
    routers[0].used(900, 5);
    hub.lose(false);
    pass(1_500).await;
    assert_eq!(routers.each_ref().map(Router::divisor), [1; 3]);
    let limits = routers[1].pool.limits.lock().unwrap();
    assert_eq!(
        (limits.elsewhere, limits.level),
        ([100, 5], 900),
        "the level, not the sum"
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_long_outage_limits_stay_divided_until_another_router_is_heard() {
    let hub = Hub::default();
    let mut routers = [1, 2].map(|id| Router::start(&hub, id, 1));
    pass(1_500).await;
    hub.connect(false);
    // Both have removed the other one, which is silent for more than six times `dead-after`.
    pass(20_000).await;
    assert_eq!(routers.each_ref().map(Router::divisor), [2; 2]);
    routers[1].stop.cancel();
    (&mut routers[1].task).await.unwrap();
    hub.connect(true);
    pass(1_000).await;
    assert_eq!(routers[0].divisor(), 2, "the other one may still use its share");
    pass(20_000).await;
    assert_eq!(routers[0].divisor(), 1);
}

#[tokio::test(start_paused = true)]
async fn routers_that_end_leave_the_whole_limit_to_the_rest() {
    let hub = Hub::default();
    let (one, two) = (Router::start(&hub, 1, 1), Router::start(&hub, 2, 1));
    one.used(0, 4);
    pass(1_500).await;
    assert_eq!(two.elsewhere(), [0, 4]);
    one.stop.cancel();
    pass(600).await;
    assert_eq!((two.elsewhere(), two.divisor()), ([0, 0], 1));
}

#[tokio::test(start_paused = true)]
async fn the_use_of_budgets_is_summed_and_ends_with_its_router() {
    let hub = Hub::default();
    let [one, two, three] = [1, 2, 3].map(|router| Router::start(&hub, router, 1));
    pass(1_500).await;
    let budget = |requests, tokens| BudgetUse { requests, tokens };
    *one.pool.budget.lock().unwrap() = budget(4, 1_000);
    *two.pool.budget.lock().unwrap() = budget(1, 10);
    pass(100).await;
    let elsewhere = || *three.pool.budget_elsewhere.lock().unwrap();
    assert_eq!(elsewhere(), budget(5, 1_010));
    *one.pool.budget.lock().unwrap() = budget(2, 500);
    pass(100).await;
    assert_eq!(elsewhere(), budget(3, 510));
    two.task.abort();
    pass(2_500).await;
    assert_eq!(elsewhere(), budget(2, 500));
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_never_whole_while_the_use_of_the_others_is_not_known() {
    let hub = Hub::default();
    let [one, two] = [1, 2].map(|router| Router::start(&hub, router, 1));
    let used = BudgetUse {
        requests: 4,
        tokens: 0,
    };
    *one.pool.budget.lock().unwrap() = used;
    pass(1_500).await;
    let shown = || std::mem::take(&mut *two.pool.shown_use.lock().unwrap());
    shown();
    // Another configuration with the same pool.
    two.generation.fetch_add(1, Ordering::Relaxed);
    pass(1_000).await;
    let after_reload = shown();
    assert!(!after_reload.is_empty());
    assert!(
        after_reload.iter().all(|(requests, _)| *requests == 4),
        "{after_reload:?}"
    );
    hub.lose(true);
    pass(2_500).await;
    let lost = shown();
    let mut unknown = lost.iter().filter(|(requests, _)| *requests == 0).peekable();
    assert!(unknown.peek().is_some(), "{lost:?}");
    assert!(unknown.all(|(_, divisor)| *divisor == 2), "{lost:?}");
    hub.lose(false);
    pass(1_500).await;
    let found = shown();
    assert_eq!(found.last(), Some(&(4, 1)), "{found:?}");
    assert!(found.iter().all(|shown| *shown != (0, 1)), "{found:?}");
}
