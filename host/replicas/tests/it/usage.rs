//! Usage over a bus that loses, delays, repeats and reorders messages.

use std::collections::BTreeMap;

use proptest::prelude::*;
use replicas::{
    MOST_USAGE_ROWS, RouterId, SuccessionSpec, UsageChange, UsageKey, UsageMessage, UsagePeers,
    UsagePublisher, UsageReading, UsageRow, UsageValue, WireError,
};

const KEYS: u64 = 3;
const ROUTERS: usize = 3;

fn key(name: u64) -> UsageKey {
    UsageKey {
        group: 7 + name / 2,
        name,
    }
}

/// A router that uses counters (even names) and gauges (odd ones).
struct Sender {
    publisher: UsagePublisher,
    numbers: [u64; KEYS as usize],
}

impl Sender {
    fn new(router: u64) -> Self {
        Self {
            publisher: UsagePublisher::new(RouterId(router)),
            numbers: [0; KEYS as usize],
        }
    }

    fn message(&mut self, now_ms: u64) -> Option<UsageMessage> {
        let numbers = self.numbers;
        let reading = |name: u64| match name % 2 {
            0 => UsageReading::Counter {
                total: numbers[name as usize],
                level: 0,
                life: 0,
            },
            _ => UsageReading::Gauge(numbers[name as usize]),
        };
        self.publisher
            .message(now_ms, (0..KEYS).map(|name| (key(name), reading(name))))
    }
}

/// Receiver with the sum of its notifications.
#[derive(Debug)]
struct Receiver {
    peers: UsagePeers,
    sums: BTreeMap<UsageKey, i64>,
    levels: Vec<u64>,
    known: Vec<u64>,
}

impl Default for Receiver {
    fn default() -> Self {
        Self {
            peers: UsagePeers::new(SuccessionSpec {
                late_ms: 1_500,
                gap_ms: 20_000,
            }),
            sums: BTreeMap::new(),
            levels: Vec::new(),
            known: Vec::new(),
        }
    }
}

impl Receiver {
    /// Receives a message when it was sent.
    fn receive(&mut self, message: &UsageMessage) {
        self.receive_at(message.sent_ms, message);
    }

    fn receive_at(&mut self, now_ms: u64, message: &UsageMessage) {
        let mut changes = Vec::new();
        let read = UsageMessage::decode(&message.encode()).unwrap();
        assert_eq!(&read, message);
        self.peers.apply(now_ms, &read, &mut changes);
        self.take(changes);
    }

    fn retain(&mut self, is_alive: impl Fn(RouterId) -> bool) {
        let mut changes = Vec::new();
        self.peers.retain(is_alive, &mut changes);
        self.take(changes);
    }

    fn take(&mut self, changes: Vec<(UsageKey, UsageChange)>) {
        for (key, change) in changes {
            match change {
                UsageChange::Used(more) => *self.sums.entry(key).or_default() += more,
                UsageChange::Gauge(sum) => {
                    self.sums.insert(key, sum.cast_signed());
                }
                UsageChange::Level(level) => self.levels.push(level),
                UsageChange::Known(level) => self.known.push(level),
            }
        }
    }

    fn sum(&self, name: u64) -> i64 {
        self.sums.get(&key(name)).copied().unwrap_or_default()
    }
}

fn counter(total: u64, level: u64) -> UsageReading {
    UsageReading::Counter {
        total,
        level,
        life: 0,
    }
}

#[test]
fn only_changes_are_sent_and_those_that_matter_are_repeated_each_second() {
    let mut publisher = UsagePublisher::new(RouterId(1));
    let mut rows = |now_ms, total, level, gauge| {
        let readings = [
            (key(0), counter(total, level)),
            (key(1), UsageReading::Gauge(gauge)),
        ];
        let message = publisher.message(now_ms, readings)?;
        Some(message.rows.iter().map(|row| row.key.name).collect::<Vec<_>>())
    };
    assert_eq!(rows(0, 0, 0, 0), Some(vec![]), "never used");
    assert_eq!(rows(10, 0, 0, 0), None);
    assert_eq!(rows(50, 5, 9, 0), Some(vec![0]));
    assert_eq!(rows(100, 5, 8, 0), None, "its level falls by itself");
    assert_eq!(rows(150, 5, 8, 2), Some(vec![1]));
    assert_eq!(rows(1_050, 5, 8, 2), Some(vec![0]), "repeated");
    assert_eq!(rows(1_150, 5, 8, 2), Some(vec![1]));
    assert_eq!(rows(1_200, 5, 8, 0), Some(vec![1]));
    assert_eq!(
        rows(15_000, 5, 8, 0),
        Some(vec![0]),
        "its level matters to a new router"
    );
    assert_eq!(rows(16_000, 5, 0, 0), Some(vec![]), "nothing matters");
}

#[test]
fn a_counter_whose_beginning_was_not_seen_gives_its_level() {
    let mut sender = UsagePublisher::new(RouterId(1));
    sender.message(0, [(key(0), counter(1_000, 40))]);
    let late = sender.message(10, [(key(0), counter(1_010, 45))]).unwrap();
    let mut receiver = Receiver::default();
    receiver.receive(&late);
    assert_eq!((receiver.sum(0), receiver.levels.as_slice()), (0, &[45][..]));
    let readings = [(key(0), counter(1_013, 48)), (key(2), counter(6, 6))];
    receiver.receive(&sender.message(20, readings).unwrap());
    assert_eq!(
        (receiver.sum(0), receiver.sum(2)),
        (3, 6),
        "the second began after it"
    );
    // Once it was silent, it is as new.
    receiver.retain(|_| false);
    receiver.receive(&sender.message(30, [(key(0), counter(9_000, 60))]).unwrap());
    assert_eq!((receiver.sum(0), receiver.levels.as_slice()), (3, &[45, 60][..]));
}

#[test]
fn a_counter_gives_its_level_with_each_message_once_it_is_known() {
    let mut sender = UsagePublisher::new(RouterId(1));
    let mut receiver = Receiver::default();
    for (now_ms, total, level) in [(0, 10, 10), (50, 13, 12), (1_050, 13, 11), (2_050, 13, 0)] {
        let message = sender.message(now_ms, [(key(0), counter(total, level))]);
        receiver.receive(&message.unwrap());
    }
    assert_eq!((receiver.levels, receiver.known), (vec![10], vec![12, 11]));
    assert_eq!(receiver.sums[&key(0)], 3);
}

#[test]
fn totals_of_a_backlog_are_not_charged_at_once() {
    const LEVEL: u64 = 60_000;
    let mut sender = UsagePublisher::new(RouterId(1));
    let mut receiver = Receiver::default();
    let mut receive = |now_ms, sent_ms, receiver: &mut Receiver| {
        let message = sender.message(sent_ms, [(key(0), counter(sent_ms, LEVEL))]);
        receiver.receive_at(now_ms, &message.unwrap());
    };
    receive(1_000, 1_000, &mut receiver);
    // The receiver was paused, and forgets the router before it reads what has come meanwhile.
    receiver.retain(|_| false);
    for sent_ms in (1_050..=26_000).step_by(50) {
        receive(26_000, sent_ms, &mut receiver);
    }
    assert!(receiver.sum(0) <= 1_600, "{}", receiver.sum(0));
    let charged = receiver.sum(0);
    receive(26_600, 26_600, &mut receiver);
    receive(26_650, 26_650, &mut receiver);
    assert_eq!(receiver.sum(0), charged + 50);
    assert!(receiver.levels.iter().all(|level| *level == LEVEL));
}

#[test]
fn use_between_a_late_message_and_a_new_one_is_not_charged_at_once() {
    let mut sender = UsagePublisher::new(RouterId(1));
    let mut receiver = Receiver::default();
    let late = sender.message(0, [(key(0), counter(5, 40))]).unwrap();
    receiver.receive_at(30_000, &late);
    let new = sender.message(30_050, [(key(0), counter(90_000, 45))]).unwrap();
    receiver.receive_at(30_051, &new);
    assert_eq!((receiver.sum(0), receiver.levels), (0, vec![40, 45]));
}

#[test]
fn a_counter_that_is_made_again_begins_at_nothing() {
    let mut sender = UsagePublisher::new(RouterId(1));
    let mut receiver = Receiver::default();
    let other = (key(1), UsageReading::Gauge(1));
    receiver.receive(&sender.message(0, [other]).unwrap());
    receiver.receive(&sender.message(50, [other, (key(0), counter(40, 0))]).unwrap());
    for now_ms in [1_100, 2_200] {
        receiver.receive(&sender.message(now_ms, [other]).unwrap());
    }
    receiver.receive(&sender.message(2_300, [other, (key(0), counter(7, 0))]).unwrap());
    assert_eq!(receiver.sum(0), 47);
}

#[test]
fn a_counter_that_is_made_again_at_once_gives_nothing_back() {
    let mut sender = UsagePublisher::new(RouterId(1));
    let mut receiver = Receiver::default();
    let reading = |total, life| {
        (
            key(0),
            UsageReading::Counter {
                total,
                level: 0,
                life,
            },
        )
    };
    receiver.receive(&sender.message(0, []).unwrap());
    receiver.receive(&sender.message(50, [reading(40, 1)]).unwrap());
    receiver.receive(&sender.message(100, [reading(7, 2)]).unwrap());
    assert_eq!(receiver.sum(0), 47);
    receiver.receive(&sender.message(150, [reading(9, 2)]).unwrap());
    assert_eq!(receiver.sum(0), 49);
}

#[test]
fn a_gauge_that_is_no_longer_read_is_0_at_the_others() {
    let mut sender = UsagePublisher::new(RouterId(1));
    let (mut receiver, mut late) = (Receiver::default(), Receiver::default());
    let gauge = |value| (key(1), UsageReading::Gauge(value));
    receiver.receive(&sender.message(0, [gauge(4)]).unwrap());
    late.receive(&sender.message(1_000, [gauge(4)]).unwrap());
    let ended = sender.message(2_000, []).unwrap();
    receiver.receive(&ended);
    assert_eq!(receiver.sum(1), 0);
    // One message may be lost: the 0 is repeated for a while, and then forgotten.
    let repeated = sender.message(3_000, []).unwrap();
    late.receive(&repeated);
    assert_eq!(late.sum(1), 0);
    let rows = [12_500, 13_500, 14_500].map(|now_ms| sender.message(now_ms, []).unwrap().rows.len());
    assert_eq!(rows, [0; 3]);
    receiver.receive(&sender.message(15_500, [gauge(2)]).unwrap());
    assert_eq!(receiver.sum(1), 2);
}

#[test]
fn gauges_of_a_router_that_is_gone_count_no_more() {
    let mut receiver = Receiver::default();
    for router in [1, 2] {
        let mut sender = Sender::new(router);
        sender.numbers[1] = 10 * router;
        receiver.receive(&sender.message(0).unwrap());
    }
    assert_eq!(receiver.sum(1), 30);
    receiver.retain(|router| router == RouterId(1));
    assert_eq!(receiver.sum(1), 10);
    assert_eq!(receiver.peers.gauges().collect::<Vec<_>>(), [(key(1), 10)]);
}

#[test]
fn a_message_has_a_bounded_number_of_rows_and_the_rest_follows() {
    let mut publisher = UsagePublisher::new(RouterId(1));
    let all = 2 * MOST_USAGE_ROWS as u64 + 5;
    let readings = || (0..all).map(|name| (UsageKey { group: 1, name }, counter(1, 0)));
    let mut seen = 0;
    for at in 0..3 {
        let message = publisher.message(at, readings()).unwrap();
        assert!(message.rows.len() <= MOST_USAGE_ROWS);
        seen += message.rows.len() as u64;
    }
    assert_eq!(seen, all);
    assert_eq!(publisher.message(500, readings()), None, "all are known");
}

#[test]
fn rows_out_of_order_are_refused() {
    let row = |name| UsageRow {
        key: key(name),
        value: UsageValue::Gauge(1),
    };
    let message = UsageMessage {
        router: RouterId(1),
        sequence: 1,
        sent_ms: 0,
        rows: vec![row(1), row(1)],
    };
    assert_eq!(UsageMessage::decode(&message.encode()), Err(WireError::Order));
}

#[derive(Debug, Clone)]
enum Step {
    /// A router uses something, and publishes.
    Use { router: usize, name: u64, number: u64 },
    /// The message on the way at that place arrives.
    Deliver(usize),
    /// A message on the way arrives, and stays on the way.
    Repeat(usize),
    /// A message on the way is lost.
    Lose(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..ROUTERS, 0..KEYS, 0..1_000_u64)
            .prop_map(|(router, name, number)| Step::Use { router, name, number }),
        3 => any::<usize>().prop_map(Step::Deliver),
        1 => any::<usize>().prop_map(Step::Repeat),
        2 => any::<usize>().prop_map(Step::Lose),
    ]
}

proptest! {
    /// Whatever is lost, late, repeated or out of order: once each router's newest message has come, the sums are
    /// those of all use since the receiver heard the router first.
    #[test]
    fn usage_sums_converge_after_lost_and_late_messages(steps in prop::collection::vec(step(), 0..120)) {
        let mut senders: Vec<Sender> = (1..=ROUTERS as u64).map(Sender::new).collect();
        let mut receiver = Receiver::default();
        let mut on_the_way = Vec::new();
        // Each router is heard before the first use.
        for sender in &mut senders {
            let first = sender.publisher.message(0, [(UsageKey { group: 0, name: 0 }, UsageReading::Gauge(1))]);
            receiver.receive(&first.unwrap());
        }
        let mut now_ms = 0;
        for step in steps {
            now_ms += 50;
            match step {
                Step::Use { router, name, number } => {
                    let sender = &mut senders[router];
                    // A counter grows and is given back; a gauge takes any value.
                    let used = &mut sender.numbers[name as usize];
                    *used = if name % 2 == 0 { used.saturating_add(number).saturating_sub(300) } else { number };
                    on_the_way.extend(sender.message(now_ms));
                }
                _ if on_the_way.is_empty() => {}
                Step::Deliver(at) => {
                    let at = at % on_the_way.len();
                    receiver.receive(&on_the_way.swap_remove(at));
                }
                Step::Repeat(at) => receiver.receive(&on_the_way[at % on_the_way.len()]),
                Step::Lose(at) => {
                    let at = at % on_the_way.len();
                    on_the_way.swap_remove(at);
                }
            }
        }
        for sender in &mut senders {
            sender.publisher.resend();
            if let Some(message) = sender.message(now_ms + 1) {
                receiver.receive(&message);
            }
        }
        // What is still on the way is older.
        on_the_way.iter().for_each(|message| receiver.receive(message));
        for name in 0..KEYS {
            let used: u64 = senders.iter().map(|sender| sender.numbers[name as usize]).sum();
            prop_assert_eq!(receiver.sum(name), used.cast_signed(), "name {}", name);
        }
        prop_assert!(receiver.levels.is_empty());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = UsageMessage::decode(&bytes);
    }
}
