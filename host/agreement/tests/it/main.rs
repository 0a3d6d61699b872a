//! Views of several routers over one store that is away, late, or loses its entries: they agree in the end.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test's own functions fail by panicking too"
)]

mod convergence;
mod judged;

use std::collections::BTreeMap;

use agreement::{
    AgreedEntry, AgreedKey, AgreedKind, AgreedWrite, Agreement, KnownEntry, MOST_ENTRIES, ReportKey,
    RouterStates, StoreError, SubjectState, WriteOutcome,
};
use serde_json::json;

/// Store with revisions, and a log that its watches read.
#[derive(Clone, Default)]
struct MemoryStore {
    revision: u64,
    entries: BTreeMap<AgreedKey, (u64, Vec<u8>)>,
    /// Revisions of removed keys.
    removed: BTreeMap<AgreedKey, u64>,
    /// Entries, and removals without bytes.
    log: Vec<(AgreedKey, u64, Option<Vec<u8>>)>,
    /// Accepted writes.
    accepted: usize,
}

impl MemoryStore {
    fn write(&mut self, write: &AgreedWrite) -> WriteOutcome {
        let entry = self.entries.get(&write.key).map(|(revision, _)| *revision);
        let current = entry
            .or_else(|| self.removed.get(&write.key).copied())
            .unwrap_or(0);
        if current != write.expected {
            return WriteOutcome::Conflict;
        }
        self.revision += 1;
        self.accepted += 1;
        let entry = (self.revision, write.bytes.clone());
        self.removed.remove(&write.key);
        self.entries.insert(write.key.clone(), entry);
        self.log
            .push((write.key.clone(), self.revision, Some(write.bytes.clone())));
        WriteOutcome::Accepted(self.revision)
    }

    /// Removes an entry, as an operator does.
    fn remove(&mut self, key: &AgreedKey) {
        if self.entries.remove(key).is_some() {
            self.revision += 1;
            self.removed.insert(key.clone(), self.revision);
            self.log.push((key.clone(), self.revision, None));
        }
    }

    /// Restarts without its entries.
    fn forget(&mut self) {
        let accepted = self.accepted;
        *self = Self {
            accepted,
            ..Self::default()
        };
    }
}

/// A router with its place in the store's log.
struct Router {
    view: Agreement,
    read: usize,
}

impl Router {
    fn new(name: &str) -> Self {
        Self {
            view: Agreement::new(name),
            read: 0,
        }
    }

    fn connect(&mut self, store: &MemoryStore) {
        self.view.opened();
        for (key, (revision, bytes)) in &store.entries {
            self.view.learned(key.clone(), known(*revision, bytes));
        }
        for (key, revision) in &store.removed {
            self.view.removed(key, *revision);
        }
        self.view.synced();
        self.read = store.log.len();
    }

    fn follow(&mut self, store: &MemoryStore) {
        for (key, revision, bytes) in &store.log[self.read..] {
            match bytes {
                Some(bytes) => self.view.learned(key.clone(), known(*revision, bytes)),
                None => {
                    self.view.removed(key, *revision);
                }
            }
        }
        self.read = store.log.len();
    }

    /// Writes one proposal. `is_lost`: the store's answer is.
    fn write(&mut self, store: &mut MemoryStore, is_lost: bool) -> bool {
        let Some(write) = self.view.next_write(|_| true) else {
            return false;
        };
        let mut outcome = store.write(&write);
        if is_lost {
            outcome = WriteOutcome::Unknown(StoreError {
                doing: "write",
                why: "no answer".to_owned(),
            });
        }
        self.view.written(&write, &outcome);
        true
    }

    /// Returns router and number of the store's decision, as this router has it.
    fn seen(&self, key: &AgreedKey) -> Option<(String, u64)> {
        let mut entries = self.view.entries();
        let known = entries.find(|(known, _)| *known == key)?.1;
        Some((known.entry.by.clone(), known.entry.number))
    }

    fn value(&self, key: &AgreedKey) -> Option<i64> {
        self.view.followed(key).and_then(|entry| entry.value.as_i64())
    }
}

fn known(revision: u64, bytes: &[u8]) -> KnownEntry {
    KnownEntry {
        revision,
        entry: AgreedEntry::decode(bytes).unwrap(),
    }
}

fn key(at: usize) -> AgreedKey {
    AgreedKey::of(AgreedKind::ALL[at % 4], "subject")
}

/// Returns an empty store with two connected routers.
fn connected() -> (MemoryStore, Router, Router) {
    let store = MemoryStore::default();
    let (mut one, mut two) = (Router::new("1"), Router::new("2"));
    one.connect(&store);
    two.connect(&store);
    (store, one, two)
}

/// Returns a store with a decision of the first of two routers, which both have.
fn decided() -> (MemoryStore, Router, Router) {
    let (mut store, mut one, mut two) = connected();
    one.view.propose(key(0), json!(1), 0);
    one.write(&mut store, false);
    two.follow(&store);
    (store, one, two)
}

#[test]
fn of_two_decisions_at_the_same_revision_one_is_accepted_and_both_follow_it() {
    let (mut store, mut one, mut two) = connected();
    one.view.propose(key(0), json!(1), 0);
    two.view.propose(key(0), json!(2), 0);
    assert_eq!(
        (one.value(&key(0)), two.value(&key(0))),
        (Some(1), Some(2)),
        "each decides at once for itself"
    );
    one.write(&mut store, false);
    two.write(&mut store, false);
    assert_eq!(store.accepted, 1);
    assert_eq!(
        two.view.next_write(|_| true),
        None,
        "it waits for the entry that was accepted"
    );
    two.follow(&store);
    one.follow(&store);
    assert_eq!((one.value(&key(0)), two.value(&key(0))), (Some(1), Some(1)));
    assert_eq!((one.view.counts().accepted, two.view.counts().superseded), (1, 1));
    assert_eq!(two.view.proposals().count(), 0);
}

#[test]
fn a_decision_made_alone_is_proposed_on_return_unless_the_others_decided_since() {
    let (mut store, mut one, mut two) = connected();
    two.view.lost();
    two.view.propose(key(0), json!(7), 0);
    two.view.propose(key(1), json!(8), 0);
    assert_eq!(two.view.next_write(|_| true), None);
    one.view.propose(key(1), json!(9), 0);
    one.write(&mut store, false);
    two.connect(&store);
    while two.write(&mut store, false) {}
    one.follow(&store);
    assert_eq!((one.value(&key(0)), one.value(&key(1))), (Some(7), Some(9)));
    assert_eq!((two.value(&key(0)), two.value(&key(1))), (Some(7), Some(9)));
}

#[test]
fn a_write_whose_answer_is_lost_counts_once() {
    let mut store = MemoryStore::default();
    let mut one = Router::new("1");
    one.connect(&store);
    one.view.propose(key(0), json!(1), 0);
    one.write(&mut store, true);
    one.write(&mut store, false);
    one.follow(&store);
    assert_eq!((store.accepted, one.view.counts().accepted), (1, 1));
    assert_eq!(one.view.proposals().count(), 0);
}

#[test]
fn a_store_that_went_back_to_an_earlier_decision_gets_the_later_one_again() {
    let (mut store, key) = (MemoryStore::default(), key(0));
    let mut routers = ["1", "2", "3"].map(Router::new);
    let decide = |router: &mut Router, store: &mut MemoryStore, value: i64, at_unix_ms: u64| {
        router.view.propose(key.clone(), json!(value), at_unix_ms);
        router.write(store, false);
    };
    for router in &mut routers {
        router.connect(&store);
    }
    decide(&mut routers[0], &mut store, 1, 1_000);
    let mut restored = store.clone();
    for router in &mut routers {
        router.follow(&store);
    }
    decide(&mut routers[1], &mut store, 2, 2_000);
    routers[0].follow(&store);
    // One router is on its way to a third decision, and one has seen the first only.
    routers[1].view.propose(key.clone(), json!(3), 3_000);
    for router in &mut routers {
        router.view.lost();
        router.connect(&restored);
    }
    let values = routers.each_ref().map(|router| router.value(&key));
    assert_eq!(values, [Some(2), Some(3), Some(1)]);
    assert_eq!(routers[0].view.counts().restored, 1);
    for _ in 0..3 {
        for router in &mut routers {
            router.write(&mut restored, false);
            router.follow(&restored);
        }
    }
    let values = routers.each_ref().map(|router| router.value(&key));
    assert_eq!(values, [Some(3); 3]);
    assert_eq!(
        routers[1].view.counts().restored,
        0,
        "its own decision replaces the lost one"
    );
}

#[test]
fn a_store_that_went_back_gets_the_latest_decision_though_another_router_restored_an_earlier_one_first() {
    for is_removed in [false, true] {
        let (mut store, key) = (MemoryStore::default(), key(0));
        let (mut one, mut two) = (Router::new("1"), Router::new("2"));
        one.connect(&store);
        two.connect(&store);
        let decide = |router: &mut Router, store: &mut MemoryStore, value: i64| {
            router
                .view
                .propose(key.clone(), json!(value), value.unsigned_abs() * 1_000);
            router.write(store, false);
            router.follow(store);
        };
        decide(&mut one, &mut store, 1);
        if is_removed {
            store.remove(&key);
        }
        let mut restored = store.clone();
        one.follow(&store);
        two.follow(&store);
        decide(&mut one, &mut store, 2);
        one.view.lost();
        two.follow(&store);
        decide(&mut two, &mut store, 3);
        two.view.lost();
        one.connect(&restored);
        two.connect(&restored);
        assert_eq!((one.value(&key), two.value(&key)), (Some(2), Some(3)));
        // The first of them writes another decision before, so that its revisions are not lower.
        one.view.propose(AgreedKey::of(AgreedKind::Hold, ""), json!(0), 0);
        while one.write(&mut restored, false) {}
        for _ in 0..2 {
            two.write(&mut restored, false);
            two.follow(&restored);
        }
        one.follow(&restored);
        assert_eq!((one.value(&key), two.value(&key)), (Some(3), Some(3)));
        assert_eq!((one.view.counts().restored, two.view.counts().restored), (1, 1));
        assert_eq!(two.view.proposals().count(), 0);
    }
}

#[test]
fn a_later_decision_of_a_store_that_began_anew_is_followed() {
    let (mut store, key) = (MemoryStore::default(), key(0));
    let (mut one, mut two) = (Router::new("1"), Router::new("2"));
    one.connect(&store);
    for value in 1..4 {
        one.view.propose(key.clone(), json!(value), 1_000);
        one.write(&mut store, false);
    }
    one.view.lost();
    store.forget();
    two.connect(&store);
    two.view.propose(key.clone(), json!(9), 2_000);
    two.write(&mut store, false);
    one.connect(&store);
    assert_eq!((one.value(&key), one.view.counts().restored), (Some(9), 0));
}

#[test]
fn a_store_that_lost_its_entries_gets_them_back_from_one_router() {
    let (mut store, mut one, mut two) = connected();
    for number in 0..3 {
        one.view.propose(key(0), json!(number), 0);
        one.write(&mut store, false);
        one.follow(&store);
        two.follow(&store);
    }
    store.forget();
    for router in [&mut one, &mut two] {
        router.view.lost();
        router.connect(&store);
    }
    while one.write(&mut store, false) || two.write(&mut store, false) {}
    one.follow(&store);
    two.follow(&store);
    assert_eq!((one.value(&key(0)), two.value(&key(0))), (Some(2), Some(2)));
    assert_eq!(store.accepted, 4, "one of them wrote it");
    let mut three = Router::new("3");
    three.connect(&store);
    assert_eq!(three.value(&key(0)), Some(2));
}

#[test]
fn a_decision_on_a_key_whose_entry_was_removed_is_agreed() {
    let (mut store, mut one, mut two) = decided();
    store.remove(&key(0));
    two.view.propose(key(0), json!(2), 0);
    two.write(&mut store, false);
    one.follow(&store);
    two.follow(&store);
    assert_eq!(one.value(&key(0)), None);
    while two.write(&mut store, false) {}
    one.follow(&store);
    assert_eq!((one.value(&key(0)), two.value(&key(0))), (Some(2), Some(2)));

    store.remove(&key(0));
    let mut late = Router::new("3");
    late.connect(&store);
    one.view.lost();
    one.connect(&store);
    assert_eq!(one.view.proposals().count(), 0, "a removed entry is not restored");
    late.view.propose(key(0), json!(3), 0);
    late.write(&mut store, false);
    one.follow(&store);
    assert_eq!(one.value(&key(0)), Some(3));
}

#[test]
fn a_decision_on_a_key_whose_entry_cannot_be_read_replaces_it_and_an_earlier_one_gives_way() {
    let (mut store, mut router, key) = (MemoryStore::default(), Router::new("a"), key(0));
    let of_later_version = AgreedWrite {
        key: key.clone(),
        bytes: Vec::new(),
        expected: 0,
        number: 1,
    };
    let WriteOutcome::Accepted(revision) = store.write(&of_later_version) else {
        panic!("the key is free")
    };
    router.view.propose(key.clone(), json!(1), 0);
    router.view.opened();
    router.view.unreadable(&key, revision);
    router.view.synced();
    assert!(
        !router.write(&mut store, false),
        "the entry is older than the store's"
    );
    assert_eq!(router.view.counts().superseded, 1);
    router.view.propose(key.clone(), json!(2), 0);
    assert!(router.write(&mut store, false));
    assert_eq!(
        (router.value(&key), router.view.proposals().count()),
        (Some(2), 0)
    );
    assert_eq!(store.accepted, 2);
}

#[test]
fn a_decision_beyond_the_most_entries_is_given_up() {
    let entry = AgreedEntry::new("2", 1, 0, json!(1));
    let mut one = Router::new("1");
    one.view.opened();
    for at in 0..MOST_ENTRIES {
        let key = AgreedKey::of(AgreedKind::Instance, &at.to_string());
        let (revision, entry) = (at as u64 + 1, entry.clone());
        one.view.learned(key, KnownEntry { revision, entry });
    }
    one.view.synced();
    let known = AgreedKey::of(AgreedKind::Instance, "7");
    one.view.propose(known.clone(), json!(2), 0);
    one.view.propose(key(0), json!(2), 0);
    assert_eq!(one.view.give_up(), [key(0)]);
    assert_eq!(
        one.view.proposals().map(|(key, _)| key).collect::<Vec<_>>(),
        [&known]
    );
    assert_eq!(one.view.counts().refused, 1);
}

#[test]
fn a_decision_whose_parts_are_not_stored_lets_the_others_pass() {
    let mut store = MemoryStore::default();
    let mut one = Router::new("1");
    one.connect(&store);
    one.view.propose(key(0), json!(1), 0);
    one.view.propose(key(1), json!(2), 0);
    let write = one.view.next_write(|ready| *ready != key(0)).unwrap();
    assert_eq!(write.key, key(1));
    one.view.written(&write, &store.write(&write));
    assert_eq!(one.view.next_write(|ready| *ready != key(0)), None);
    assert_eq!(one.view.next_write(|_| true).map(|write| write.key), Some(key(0)));
}

#[test]
fn texts_of_keys_and_reports_are_read_back_and_others_are_not() {
    for at in 0..4 {
        assert_eq!(AgreedKey::parse(&key(at).to_string()), Some(key(at)));
    }
    for text in [
        "",
        "hold",
        "hold.1",
        "other.00000000000000000000000000000000",
        "hold.0000000000000000000000000000000G",
    ] {
        assert_eq!(AgreedKey::parse(text), None, "{text}");
    }
    let reports = [
        ReportKey::States {
            router: "0a".to_owned(),
        },
        ReportKey::Evidence {
            router: "0a".to_owned(),
            trial: "1b".to_owned(),
        },
    ];
    for report in reports {
        assert_eq!(ReportKey::parse(&report.text()), Some(report));
    }
    for text in ["states", "states.x", "evidence.1b", "evidence.1b.0a.2"] {
        assert_eq!(ReportKey::parse(text), None, "{text}");
    }
    let mut states = RouterStates::of("router-0");
    assert!(states.set(&key(0), 3, SubjectState::Refused("no bytes".to_owned())));
    assert!(!states.set(&key(0), 3, SubjectState::Refused("no bytes".to_owned())));
    assert_eq!(RouterStates::decode(&states.encode()), Some(states));
    assert_eq!(RouterStates::decode(b"[]"), None);
    let entry = AgreedEntry::new("1", 2, 3, json!({"a": 1}));
    assert_eq!(AgreedEntry::decode(&entry.encode()).unwrap(), entry);
    let other_version = String::from_utf8(entry.encode())
        .unwrap()
        .replace("\"version\":1", "\"version\":2");
    assert!(AgreedEntry::decode(other_version.as_bytes()).is_err());
}
