//! Routers that fall silent, leave or are late.

use replicas::{HelloMessage, Peers, PeersSpec, RouterId, RouterState, WorkerGauges, WorkerKey};
use routing::{EngineReport, HeldSummary, LoadTotals, WorkerId};

use crate::{SPEC, message, publisher, receiver, requests, workers};

fn hello(sent_ms: u64) -> HelloMessage {
    HelloMessage {
        router: RouterId(1).to_string(),
        name: "one".to_owned(),
        version: String::new(),
        state: RouterState::Ready,
        fleet_hash: String::new(),
        config_hash: String::new(),
        sent_ms,
        fill: None,
    }
}

fn engine(running: f64) -> EngineReport {
    EngineReport {
        running,
        waiting: f64::NAN,
        kv_usage: f64::NAN,
        kv_tokens: f64::NAN,
    }
}

#[test]
fn a_silent_router_fades_as_far_as_the_engine_does_not_confirm_it() {
    let shared = workers(2);
    let mut peers = Peers::new(RouterId(0), SPEC);
    peers.set_workers(shared.clone());
    let _own = shared[0].load.book(10, 10);
    shared[0].load.record_engine_report(engine(5.0), 0);
    let bytes = message(&mut publisher(1, 2), 1, &[6, 4]).unwrap();
    peers.receive(1, &bytes).unwrap();
    peers.tick(SPEC.dead_after_ms);
    assert_eq!(requests(&peers, 2), [6, 4], "not silent yet");
    peers.tick(SPEC.dead_after_ms + 2);
    assert_eq!(
        requests(&peers, 2),
        [4, 0],
        "one of the five is the own one; the second engine reports nothing"
    );
    assert_eq!(peers.sum(WorkerKey(0)).unwrap().load().prefill_tokens, 400);
    shared[0].load.record_engine_report(engine(3.0), 1);
    peers.tick(SPEC.dead_after_ms + 500);
    assert_eq!(requests(&peers, 2), [2, 0]);
    shared[0].load.record_engine_report(engine(9.0), 2);
    peers.tick(SPEC.dead_after_ms + 1_000);
    assert_eq!(
        requests(&peers, 2),
        [2, 0],
        "requests of others do not bring it back"
    );
    assert_eq!(peers.live(), 0);
    peers.tick(SPEC.forget_after_ms + 2);
    assert_eq!(requests(&peers, 2), [0, 0]);
    assert_eq!((peers.members(20_000).len(), peers.counts().expired), (0, 1));
}

#[test]
fn a_router_that_died_fades_sooner_once_a_successor_of_its_name_is_heard() {
    let (mut peers, mut sender) = (receiver(0, 1), publisher(1, 1));
    peers.receive(1, &message(&mut sender, 1, &[6]).unwrap()).unwrap();
    peers.hello(1, RouterId(1), hello(1));
    peers.tick(900);
    assert_eq!(requests(&peers, 1), [6], "it may be late");
    peers.hello(900, RouterId(2), hello(0));
    peers.tick(900);
    assert_eq!(requests(&peers, 1), [0], "its successor is there");
    assert_eq!(peers.live(), 1);
}

#[test]
fn requests_of_a_replaced_router_end_although_the_engine_reported_them() {
    let (mut peers, mut sender) = (Peers::new(RouterId(0), SPEC), publisher(1, 1));
    let shared = workers(1);
    peers.set_workers(shared.clone());
    shared[0].load.record_engine_report(engine(6.0), 0);
    peers.receive(1, &message(&mut sender, 1, &[6]).unwrap()).unwrap();
    peers.hello(1, RouterId(1), hello(1));
    peers.tick(SPEC.dead_after_ms + 2);
    assert_eq!(requests(&peers, 1), [6], "it may only be cut off");
    let now_ms = SPEC.dead_after_ms + 100;
    peers.hello(now_ms, RouterId(2), hello(0));
    peers.tick(now_ms);
    assert_eq!(requests(&peers, 1), [0], "its process has ended");
    peers.hello(now_ms + 1, RouterId(1), hello(now_ms + 1));
    peers.tick(now_ms + 2);
    assert_eq!(requests(&peers, 1), [6], "two routers have the same name");
}

#[test]
fn routers_that_share_a_name_and_are_heard_count_in_full() {
    let (mut peers, mut sender) = (receiver(0, 1), publisher(1, 1));
    peers.receive(1, &message(&mut sender, 1, &[6]).unwrap()).unwrap();
    for now_ms in [1, 500, 1_000] {
        peers.hello(now_ms, RouterId(1), hello(now_ms));
        peers.hello(now_ms, RouterId(2), hello(now_ms));
        peers.tick(now_ms + 250);
        assert_eq!((requests(&peers, 1), peers.live()), (vec![6], 2));
    }
}

#[test]
fn a_router_that_is_heard_again_counts_in_full() {
    let (mut peers, mut sender) = (receiver(0, 1), publisher(1, 1));
    peers.receive(1, &message(&mut sender, 1, &[6]).unwrap()).unwrap();
    peers.tick(2_000);
    assert_eq!(requests(&peers, 1), [0]);
    peers.hello(2_100, RouterId(1), hello(2_100));
    peers.tick(2_101);
    assert_eq!(requests(&peers, 1), [6], "its last figures stand");
    assert_eq!(peers.live(), 1);
}

#[test]
fn a_goodbye_counts_at_once_and_late_messages_do_not_bring_it_back() {
    let (mut peers, mut sender) = (receiver(0, 1), publisher(1, 1));
    let late = message(&mut sender, 1, &[6]).unwrap();
    peers.receive(1, &late).unwrap();
    let later = message(&mut sender, 2, &[7]).unwrap();
    peers.goodbye(RouterId(1));
    assert_eq!(requests(&peers, 1), [0]);
    peers.receive(3, &later).unwrap();
    peers.hello(4, RouterId(1), hello(4));
    assert_eq!(requests(&peers, 1), [0]);
    assert!(peers.members(5).is_empty());
}

#[test]
fn messages_that_are_late_count_as_silence() {
    let (mut peers, mut sender) = (receiver(0, 1), publisher(1, 1));
    peers.receive(1, &message(&mut sender, 1, &[1]).unwrap()).unwrap();
    let stalled = message(&mut sender, 2, &[9]).unwrap();
    // The server stalls for three seconds, and delivers then.
    peers.receive(3_002, &stalled).unwrap();
    assert_eq!(peers.members(3_002)[0].delay_ms, 3_000);
    assert_eq!(requests(&peers, 1), [0]);
    let fresh = message(&mut sender, 3_003, &[4]).unwrap();
    peers.receive(3_003, &fresh).unwrap();
    assert_eq!(requests(&peers, 1), [4]);
}

#[test]
fn a_paused_router_counts_as_live_again() {
    const PAUSE_MS: u64 = 4_000;
    let (mut peers, mut sender) = (receiver(0, 1), publisher(1, 1));
    peers.receive(1, &message(&mut sender, 1, &[6]).unwrap()).unwrap();
    // Its machine is paused, and its clock with it. Then it sends as before.
    let mut live_at_ms = None;
    for sent_ms in (250..60_000).step_by(250) {
        let now_ms = sent_ms + PAUSE_MS;
        peers.hello(now_ms, RouterId(1), hello(sent_ms));
        if let Some(bytes) = message(&mut sender, sent_ms, &[6]) {
            peers.receive(now_ms, &bytes).unwrap();
        }
        peers.tick(now_ms);
        live_at_ms = live_at_ms.or_else(|| (peers.live() == 1).then_some(sent_ms));
        assert_eq!(
            peers.live() == 1,
            live_at_ms.is_some(),
            "{sent_ms}: it stays live"
        );
    }
    assert!(
        live_at_ms.is_some_and(|at_ms| (SPEC.forget_after_ms..SPEC.forget_after_ms + 1_000).contains(&at_ms)),
        "{live_at_ms:?}"
    );
    assert_eq!((requests(&peers, 1), peers.counts().expired), (vec![6], 0));
    assert_eq!(peers.members(63_750)[0].delay_ms, 0);
}

#[test]
fn freed_capacity_is_reported_once() {
    let (mut peers, mut sender) = (receiver(0, 2), publisher(1, 2));
    let mut send = |peers: &mut Peers, now_ms, loads: [u32; 2]| {
        let bytes = message(&mut sender, now_ms, &loads).unwrap();
        peers.receive(now_ms, &bytes).unwrap();
        peers.take_freed().len()
    };
    assert_eq!(send(&mut peers, 1, [2, 2]), 0);
    assert_eq!(send(&mut peers, 2, [1, 3]), 1);
    assert_eq!(peers.take_freed(), []);
}

#[test]
fn a_held_request_that_is_gone_with_its_router_frees_its_worker() {
    type End = fn(&mut Peers);
    let ends: [(&str, End); 3] = [
        ("silence", |peers| peers.tick(SPEC.dead_after_ms + 2)),
        ("removal", |peers| peers.tick(SPEC.forget_after_ms + 2)),
        ("goodbye", |peers| peers.goodbye(RouterId(1))),
    ];
    for (what, end) in ends {
        for has_engine in [false, true] {
            let shared = workers(2);
            let mut peers = Peers::new(RouterId(0), SPEC);
            peers.set_workers(shared.clone());
            if has_engine {
                shared[1].load.record_engine_report(engine(5.0), 0);
            }
            let mut held = HeldSummary::default();
            held.add(700, 3.0);
            let held = WorkerGauges::new(LoadTotals::default(), Some(&held));
            let gauges = [WorkerGauges::default(), held].into_iter();
            let sent = publisher(1, 2).message(1, gauges, std::iter::empty()).unwrap();
            peers.apply(1, &sent);
            assert_eq!(peers.sum(WorkerKey(1)).unwrap().first_order(), 3.0);
            assert_eq!(peers.take_freed(), []);
            peers.tick(SPEC.dead_after_ms);
            assert_eq!(peers.take_freed(), [], "{what}: not silent yet");
            end(&mut peers);
            assert_eq!(peers.take_freed(), [WorkerId(1)], "{what}, {has_engine}");
            assert_eq!(peers.sum(WorkerKey(1)).unwrap().held().requests(), 0);
        }
    }
}

#[test]
fn the_number_of_routers_is_bounded() {
    let mut peers = Peers::new(
        RouterId(0),
        PeersSpec {
            dead_after_ms: 1,
            forget_after_ms: 10,
        },
    );
    peers.set_workers(workers(1));
    for router in 1..=100 {
        let bytes = message(&mut publisher(router, 1), 1, &[1]).unwrap();
        peers.receive(1, &bytes).unwrap();
    }
    assert_eq!((peers.members(1).len(), peers.counts().refused), (64, 36));
    assert_eq!(requests(&peers, 1), [64]);
    peers.tick(100);
    assert_eq!(requests(&peers, 1), [0]);
}
