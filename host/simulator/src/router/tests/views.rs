//! Cache knowledge of a router.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use routing::{Tier, WorkerId};

use super::*;
use crate::router::Knowledge;
use crate::spec::WorkerIdentity;

const PREFIX: [&str; 3] = ["prefix.device-tokens", "prefix.host-tokens", "prefix.any-tokens"];

fn knowing(knowledge: Knowledge) -> RouterSpec {
    RouterSpec {
        knowledge,
        ..RouterSpec::default()
    }
}

/// Offers a prompt, whose request is then cancelled.
fn look(router: &mut Router, policy: &Scripted, now_us: u64, prompt: &Request) -> Vec<f64> {
    const LOOKING: usize = 1_000_000;
    router.place(now_us, arrives(LOOKING, prompt), 0);
    router.left(now_us, LOOKING);
    policy.numbers()
}

/// Returns the default router, except that sent prompts are not expected in the cache.
fn by_events(lag_us: u64, loss: f64) -> RouterSpec {
    RouterSpec {
        expect_us: 0,
        ..knowing(Knowledge::Events { lag_us, loss })
    }
}

#[test]
fn a_recorded_worker_has_its_name_weight_and_labels_and_a_request_its_model() {
    let mut cluster = workers(2);
    cluster.workers[1].speed = 3.0;
    cluster.workers[1].identity = Some(WorkerIdentity {
        name: "w1".to_owned(),
        weight: 2.0,
        labels: BTreeMap::from([("gold".to_owned(), "1".to_owned())]),
    });
    let policy = Scripted::new(&[], &["label.gold", "worker.weight"], |input| {
        assert_eq!(input.queries.model(), "m");
        let names = [0, 1].map(|id| input.queries.worker(WorkerId(id)).unwrap().spec().name.clone());
        assert_eq!(names, ["mixed-0", "w1"].map(Into::into));
        route(1)
    });
    let mut router = router(&cluster, &policy, &RouterSpec::default());
    let request = Request {
        model: "m".into(),
        ..some_request()
    };
    router.place(0, arrives(0, &request), 0);
    let numbers = policy.numbers();
    assert!(numbers[0].is_nan());
    assert_eq!(numbers[1..], [1.0, 1.0, 2.0]);
}

#[test]
fn matches_are_in_the_traces_tokens_by_tier() {
    let policy = Scripted::row(&[], &PREFIX, 0);
    let mut router = router(&workers(1), &policy, &by_events(0, 0.0));
    let prompt = request(1_300, &[1, 2, 3]);
    assert_eq!(look(&mut router, &policy, 0, &prompt), [0.0; 3]);
    router.cache_event(0, 0, &stored(&[1, 2, 3], Tier::Disk));
    router.cache_event(0, 0, &stored(&[1], Tier::Device));
    let second = CacheEvent::Stored {
        blocks: vec![2],
        parent: Some(1),
        tier: Tier::Host,
    };
    router.cache_event(0, 0, &second);
    let all_of_it = 1_300.0;
    assert_eq!(
        look(&mut router, &policy, 0, &prompt),
        [512.0, 1_024.0, all_of_it]
    );
    let removed = CacheEvent::Removed {
        blocks: vec![2],
        tier: Tier::Disk,
    };
    router.cache_event(0, 0, &removed);
    assert_eq!(
        look(&mut router, &policy, 0, &prompt),
        [512.0, 1_024.0, all_of_it]
    );
}

#[test]
fn events_are_known_after_their_lag_and_not_before() {
    let policy = Scripted::row(&[], &["prefix.any-tokens"], 0);
    let mut router = router(&workers(1), &policy, &by_events(1_000_000, 0.0));
    let prompt = request(512, &[1]);
    router.cache_event(500, 0, &stored(&[1], Tier::Device));
    assert_eq!(look(&mut router, &policy, 1_000_499, &prompt), [0.0]);
    assert_eq!(look(&mut router, &policy, 1_000_500, &prompt), [512.0]);
}

#[test]
fn a_share_of_the_events_is_lost_the_same_one_for_the_same_seed() {
    let known = |seed| {
        let policy = Scripted::row(&[], &["cache.blocks"], 0);
        let spec = RouterSpec {
            seed,
            ..by_events(0, 0.25)
        };
        let mut router = router(&workers(1), &policy, &spec);
        for block in 0..1_000 {
            router.cache_event(0, 0, &stored(&[block], Tier::Device));
        }
        let known = look(&mut router, &policy, 0, &request(512, &[0]))[0];
        assert_eq!(known, 1_000.0 - router.counts().events_lost as f64);
        known
    };
    assert!((700.0..800.0).contains(&known(1)), "{}", known(1));
    assert_eq!(known(1), known(1));
    assert_ne!(known(1), known(2));
}

#[test]
fn the_decode_worker_of_a_pair_is_expected_to_hold_what_is_computed_for_it() {
    let policy = Scripted::new(&[], &["worker.role", "prefix.any-tokens"], |_| {
        Verdict::Route(Choice {
            row: 1,
            prefill: Some(0),
            score: f64::NAN,
        })
    });
    let cluster = roles(&[Role::Prefill, Role::Decode]);
    let lifetime_us = 1_000_000;
    let mut router = router(&cluster, &policy, &knowing(Knowledge::Assumed { lifetime_us }));
    let prompt = request(1_024, &[1, 2]);
    let held = || [policy.numbers()[1], policy.numbers()[3]];
    router.place(0, arrives(0, &prompt), 0);
    router.place(1, arrives(1, &prompt), 0);
    assert_eq!(held(), [1_024.0, 0.0]);
    router.first_token(2, 0, 0);
    router.place(3, arrives(2, &prompt), 0);
    assert_eq!(held(), [1_024.0; 2]);
}

#[test]
fn a_worker_is_expected_to_hold_what_it_was_just_sent() {
    let policy = Scripted::row(&[], &["prefix.device-tokens"], 0);
    let mut router = router(
        &workers(1),
        &policy,
        &knowing(Knowledge::Events { lag_us: 0, loss: 0.0 }),
    );
    let prompt = request(1_024, &[1, 2]);
    // The block size of a worker without any event is not known.
    router.cache_event(0, 0, &stored(&[9], Tier::Device));
    router.place(1_000, arrives(0, &prompt), 0);
    router.left(1_000, 0);
    router.place(1_500_000, arrives(1, &request(512, &[7])), 0);
    router.place(1_900_000, arrives(2, &request(512, &[1])), 0);
    assert_eq!(policy.numbers(), [512.0]);
    router.place(8_000_000, arrives(3, &prompt), 0);
    assert_eq!(
        policy.numbers(),
        [0.0],
        "two generations later it has not come true"
    );
}

#[test]
fn without_events_what_was_sent_is_all_there_is() {
    let policy = Scripted::row(&[], &["prefix.any-tokens", "cache.blocks"], 0);
    let spec = knowing(Knowledge::Assumed {
        lifetime_us: 10_000_000,
    });
    let mut router = router(&workers(2), &policy, &spec);
    router.cache_event(0, 0, &stored(&[5], Tier::Device));
    router.place(0, arrives(0, &request(512, &[5])), 0);
    assert_eq!(policy.numbers()[0], 0.0, "no policy listens to events");
    router.place(1_000, arrives(1, &request(1_000, &[5, 6])), 0);
    let numbers = policy.numbers();
    assert_eq!((numbers[0], numbers[2]), (512.0, 0.0));
    assert!(numbers[1].is_nan());
}

#[test]
fn a_router_without_knowledge_of_caches_matches_nothing() {
    let policy = Scripted::row(&["prefix.best-tokens"], &PREFIX, 0);
    let mut router = router(&workers(1), &policy, &knowing(Knowledge::None));
    router.cache_event(0, 0, &stored(&[5], Tier::Device));
    let placement = router.place(0, arrives(0, &request(512, &[5])), 0);
    assert!(policy.numbers().iter().all(|number| number.is_nan()));
    let is_unmatched = matches!(placement, Placement::Dispatch { matched: None, .. });
    assert!(is_unmatched, "{placement:?}");
}

#[test]
fn a_worker_that_is_gone_has_lost_its_cache() {
    let policy = Scripted::row(&[], &["prefix.any-tokens", "worker.age-ms"], 0);
    let mut router = router(&workers(1), &policy, &by_events(1_000, 0.0));
    router.cache_event(0, 0, &stored(&[5], Tier::Device));
    router.tick(2_000);
    router.cache_event(2_500, 0, &stored(&[5, 6], Tier::Device));
    router.gone(3_000, 0);
    router.back(4_000, 0);
    assert_eq!(look(&mut router, &policy, 9_000, &request(512, &[5])), [0.0, 5.0]);
}

#[test]
fn a_policy_may_query_facts_that_it_has_no_column_of() {
    static CALLED: AtomicBool = AtomicBool::new(false);
    let policy = Scripted::new(&[], &[], |input| {
        let queries = input.queries;
        assert_eq!(queries.candidates(), [WorkerId(0), WorkerId(1)]);
        assert_eq!(queries.matched(Tier::Device), [512, 0]);
        assert_eq!(queries.matched(Tier::Disk), [512, 1_000]);
        assert_eq!((queries.holders(512), queries.holders(513)), (2, 1));
        assert_eq!(&*queries.worker(WorkerId(1)).unwrap().spec().name, "mixed-1");
        assert!(queries.worker(WorkerId(2)).is_none());
        CALLED.store(true, Ordering::Relaxed);
        route(1)
    });
    let mut router = router(&workers(2), &policy, &by_events(0, 0.0));
    router.cache_event(0, 0, &stored(&[1], Tier::Device));
    router.cache_event(0, 1, &stored(&[1, 2], Tier::Host));
    let placement = router.place(0, arrives(0, &request(1_000, &[1, 2])), 0);
    assert!(CALLED.load(Ordering::Relaxed));
    let knows = matches!(
        placement,
        Placement::Dispatch {
            matched: Some(1_000),
            ..
        }
    );
    assert!(
        knows,
        "the queried prompt is known when it is booked: {placement:?}"
    );
}
