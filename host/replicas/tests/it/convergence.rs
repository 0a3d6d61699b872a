//! Sums after faults of the bus and restarts of routers: those of the routers alive, after one full message each.

use proptest::prelude::*;
use replicas::{GaugeRows, LoadMessage, LoadPublisher, Peers, RouterId};

use crate::{SPEC, message, publisher, receiver, requests, workers};

const WORKERS: u32 = 3;
const ROUTERS: usize = 3;
/// Milliseconds between two steps.
const STEP_MS: u64 = 40;

#[derive(Debug, Clone)]
enum Step {
    /// A router's load changes, and it publishes.
    Publish {
        router: usize,
        worker: usize,
        requests: u32,
    },
    /// A message on the way arrives.
    Deliver(usize),
    /// A message on the way arrives, and stays on the way.
    Repeat(usize),
    /// A message on the way is lost.
    Lose(usize),
    /// A router ends without a goodbye, and another begins in its place.
    Restart(usize),
    /// A router learns that it may have lost messages.
    Resend(usize),
    /// The receiver loads a configuration with fewer or more workers.
    Reload(u32),
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    let router = 0..ROUTERS;
    prop_oneof![
        4 => (router.clone(), 0..WORKERS as usize, 0..50_u32)
            .prop_map(|(router, worker, requests)| Step::Publish { router, worker, requests }),
        4 => any::<usize>().prop_map(Step::Deliver),
        1 => any::<usize>().prop_map(Step::Repeat),
        2 => any::<usize>().prop_map(Step::Lose),
        1 => router.clone().prop_map(Step::Restart),
        1 => router.prop_map(Step::Resend),
        1 => (1..=WORKERS).prop_map(Step::Reload),
        1 => Just(Step::Tick),
    ]
}

/// A fleet of sending routers, one that receives, and the messages on the way.
struct Fleet {
    now_ms: u64,
    senders: Vec<(LoadPublisher, [u32; WORKERS as usize])>,
    runs: u64,
    on_the_way: Vec<Vec<u8>>,
    peers: Peers,
}

impl Fleet {
    fn new() -> Self {
        let mut fleet = Self {
            now_ms: 1,
            senders: Vec::new(),
            runs: 1,
            on_the_way: Vec::new(),
            peers: receiver(0, WORKERS),
        };
        for _ in 0..ROUTERS {
            let sender = fleet.sender();
            fleet.senders.push(sender);
        }
        fleet
    }

    /// Returns a router in a new run.
    fn sender(&mut self) -> (LoadPublisher, [u32; WORKERS as usize]) {
        self.runs += 1;
        (publisher(self.runs, WORKERS), [0; WORKERS as usize])
    }

    fn publish(&mut self, router: usize) {
        let (publisher, loads) = &mut self.senders[router];
        let bytes = message(publisher, self.now_ms, loads);
        self.on_the_way.extend(bytes);
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.peers.receive(self.now_ms, bytes).unwrap();
    }

    fn take(&mut self, at: usize) -> Option<Vec<u8>> {
        let count = self.on_the_way.len();
        (count > 0).then(|| self.on_the_way.swap_remove(at % count))
    }

    fn step(&mut self, step: &Step) {
        self.now_ms += STEP_MS;
        match step {
            Step::Publish {
                router,
                worker,
                requests,
            } => {
                self.senders[*router].1[*worker] = *requests;
                self.publish(*router);
            }
            Step::Deliver(at) => {
                if let Some(bytes) = self.take(*at) {
                    self.receive(&bytes);
                }
            }
            Step::Repeat(at) => {
                if let Some(bytes) = self.take(*at) {
                    self.receive(&bytes);
                    self.on_the_way.push(bytes);
                }
            }
            Step::Lose(at) => drop(self.take(*at)),
            Step::Restart(router) => self.senders[*router] = self.sender(),
            Step::Resend(router) => self.senders[*router].0.resend(),
            Step::Reload(count) => self.peers.set_workers(workers(*count)),
            Step::Tick => self.peers.tick(self.now_ms),
        }
    }

    /// Lets the routers that are gone expire, and each other one publish all of its loads.
    fn heal(&mut self) {
        self.on_the_way.clear();
        self.now_ms += SPEC.forget_after_ms + 1;
        self.peers.set_workers(workers(WORKERS));
        self.peers.tick(self.now_ms);
        for router in 0..ROUTERS {
            self.senders[router].0.resend();
            self.publish(router);
        }
        while let Some(bytes) = self.take(0) {
            self.receive(&bytes);
        }
    }

    fn expected(&self) -> Vec<u64> {
        (0..WORKERS as usize)
            .map(|worker| {
                self.senders
                    .iter()
                    .map(|(_, loads)| u64::from(loads[worker]))
                    .sum()
            })
            .collect()
    }
}

proptest! {
    #[test]
    fn the_sums_converge_after_any_faults(steps in proptest::collection::vec(step(), 0..120)) {
        let mut fleet = Fleet::new();
        steps.iter().for_each(|step| fleet.step(step));
        fleet.heal();
        prop_assert_eq!(requests(&fleet.peers, WORKERS), fleet.expected());
        prop_assert_eq!(fleet.peers.members(fleet.now_ms).len(), ROUTERS);
    }

    #[test]
    fn the_sums_are_those_of_the_members_at_any_time(steps in proptest::collection::vec(step(), 0..120)) {
        let mut fleet = Fleet::new();
        let mut count = WORKERS;
        for step in &steps {
            fleet.step(step);
            if let Step::Reload(reloaded) = step {
                count = *reloaded;
            }
            let sum: u64 = requests(&fleet.peers, count).iter().sum();
            let members = fleet.peers.members(fleet.now_ms);
            prop_assert_eq!(sum, members.iter().map(|member| member.requests).sum::<u64>());
        }
    }
}

#[test]
fn the_own_messages_are_not_counted() {
    let mut peers = receiver(7, WORKERS);
    let bytes = message(&mut publisher(7, WORKERS), 1, &[1, 2, 3]).unwrap();
    peers.receive(1, &bytes).unwrap();
    assert_eq!(requests(&peers, WORKERS), [0, 0, 0]);
    assert!(peers.members(1).is_empty());
}

#[test]
fn a_lost_delta_is_healed_by_the_next_full_message() {
    let (mut peers, mut sender) = (receiver(0, WORKERS), publisher(1, WORKERS));
    let mut send = |peers: &mut Peers, now_ms, loads: [u32; 3], arrives: bool| {
        let bytes = message(&mut sender, now_ms, &loads).unwrap();
        if arrives {
            peers.receive(now_ms, &bytes).unwrap();
        }
    };
    send(&mut peers, 1, [1, 0, 0], true);
    send(&mut peers, 6, [1, 5, 0], false);
    send(&mut peers, 11, [1, 5, 2], true);
    assert_eq!(
        requests(&peers, WORKERS),
        [1, 0, 2],
        "only the second worker is wrong"
    );
    assert_eq!(peers.counts().missing, 1);
    send(&mut peers, 1_002, [1, 5, 2], true);
    assert_eq!(requests(&peers, WORKERS), [1, 5, 2]);
}

#[test]
fn the_count_of_missing_messages_does_not_overflow() {
    let mut peers = receiver(0, WORKERS);
    for router in [1, 2] {
        for sequence in [1, u64::MAX] {
            let message = LoadMessage {
                router: RouterId(router),
                table: 1,
                sequence,
                sent_ms: 1,
                pools: Vec::new(),
                rows: GaugeRows::Full(Vec::new()),
            };
            peers.apply(1, &message);
        }
    }
    assert_eq!((peers.counts().missing, peers.counts().applied), (u64::MAX, 4));
}

#[test]
fn workers_of_another_configuration_are_counted_by_their_keys() {
    let mut peers = receiver(0, 2);
    let bytes = message(&mut publisher(1, 3), 1, &[1, 2, 3]).unwrap();
    peers.receive(1, &bytes).unwrap();
    assert_eq!(requests(&peers, 2), [1, 2]);
    assert_eq!(peers.members(1)[0].unknown_workers, 1);
    peers.set_workers(workers(3));
    assert_eq!(requests(&peers, 3), [1, 2, 3], "without another message");
    assert_eq!(peers.members(1)[0].router, RouterId(1));
}
