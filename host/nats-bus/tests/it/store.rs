//! The store of agreed entries.

use std::sync::Arc;
use std::time::Duration;

use agreement::{AgreedKey, AgreedKind, AgreedStore, AgreedWrite, ReportKey, StoreEvent, WriteOutcome};
use nats_bus::{NatsStore, StoreOptions};
use nats_server::NatsSite;

use crate::options;

async fn store(site: &NatsSite, fleet: &str, router: u64) -> NatsStore {
    let options = options(site, fleet, router);
    NatsStore::start(&options, one_copy()).await.unwrap()
}

/// Returns options of a store on one server, which waits an hour for each answer. Opening, the first values and objects
/// keep their limits.
pub(crate) fn one_copy() -> StoreOptions {
    StoreOptions {
        copies: 1,
        answer: Duration::from_hours(1),
    }
}

fn key() -> AgreedKey {
    AgreedKey::of(AgreedKind::Hold, "p")
}

fn write(bytes: &[u8], expected: u64) -> AgreedWrite {
    AgreedWrite {
        key: key(),
        bytes: bytes.to_vec(),
        expected,
        number: 1,
    }
}

/// Returns the events up to the one that ends the beginning.
pub(crate) async fn synced(store: &mut NatsStore) -> Vec<StoreEvent> {
    let mut events = Vec::new();
    loop {
        match store.next().await {
            StoreEvent::Synced => return events,
            StoreEvent::Lost(why) => eprintln!("lost: {why}"),
            event => events.push(event),
        }
    }
}

/// Returns the bytes of the next entry.
async fn entry(store: &mut NatsStore) -> Vec<u8> {
    loop {
        if let StoreEvent::Entry { bytes, .. } = store.next().await {
            return bytes;
        }
    }
}

#[tokio::test]
async fn one_write_of_two_at_a_revision_is_accepted_and_another_fleet_sees_none() {
    let site = NatsSite::new().unwrap();
    let Some(_server) = site.start() else { return };
    let (mut one, mut two) = (store(&site, "main", 1).await, store(&site, "main", 2).await);
    let mut other = store(&site, "main2", 3).await;
    for store in [&mut one, &mut two, &mut other] {
        assert_eq!(synced(store).await, [StoreEvent::Opened], "the buckets are empty");
    }
    let WriteOutcome::Accepted(first) = one.write(&write(b"1", 0)).await else {
        panic!("the key has no entry")
    };
    assert_eq!(two.write(&write(b"2", 0)).await, WriteOutcome::Conflict);
    let read = StoreEvent::Entry {
        key: key(),
        revision: first,
        bytes: b"1".to_vec(),
    };
    assert_eq!(two.read(&key()).await, Ok(Some(read)));
    assert_eq!(other.read(&key()).await, Ok(None));
    assert_eq!(entry(&mut two).await, b"1");
    let WriteOutcome::Accepted(second) = two.write(&write(b"2", first)).await else {
        panic!("the revision is the latest")
    };
    assert!(second > first);
    assert_eq!(one.write(&write(b"3", first)).await, WriteOutcome::Conflict);
    assert_eq!(
        (entry(&mut one).await, entry(&mut one).await),
        (b"1".to_vec(), b"2".to_vec())
    );

    let report = ReportKey::States {
        router: "1".to_owned(),
    };
    one.report(&report, b"r".to_vec()).await.unwrap();
    let mut late = store(&site, "main", 4).await;
    let found = synced(&mut late).await;
    let last = StoreEvent::Entry {
        key: key(),
        revision: second,
        bytes: b"2".to_vec(),
    };
    let reported = StoreEvent::Report {
        key: report,
        bytes: b"r".to_vec(),
    };
    assert!(found.contains(&last) && found.contains(&reported), "{found:?}");
    // An entry of the other fleet is the first that it sees.
    let WriteOutcome::Accepted(_) = other.write(&write(b"other", 0)).await else {
        panic!("the other fleet has no entry")
    };
    assert_eq!(entry(&mut other).await, b"other");
}

#[tokio::test]
async fn objects_are_found_by_their_name_in_their_own_fleet_only() {
    let site = NatsSite::new().unwrap();
    let Some(_server) = site.start() else { return };
    let (mut one, mut other) = (store(&site, "main", 1).await, store(&site, "main2", 2).await);
    synced(&mut one).await;
    synced(&mut other).await;
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    assert_eq!(one.object("abc").await.unwrap(), None);
    for _ in 0..2 {
        one.put_object("abc", Arc::new(bytes.clone())).await.unwrap();
    }
    assert_eq!(one.object("abc").await.unwrap(), Some(bytes));
    assert_eq!(other.object("abc").await.unwrap(), None);
}

#[tokio::test]
async fn a_store_is_lost_with_its_server_and_has_its_entries_when_it_returns() {
    let site = NatsSite::new().unwrap();
    let mut one = store(&site, "main", 1).await;
    assert!(matches!(
        one.write(&write(b"1", 0)).await,
        WriteOutcome::Unknown(_)
    ));
    let Some(server) = site.start() else { return };
    synced(&mut one).await;
    let WriteOutcome::Accepted(_) = one.write(&write(b"1", 0)).await else {
        panic!("the key has no entry")
    };
    drop(server);
    while !matches!(one.next().await, StoreEvent::Lost(_)) {}
    let server = site.start();
    let entries = |events: &[StoreEvent]| {
        let mut events = events.iter();
        events.any(|event| matches!(event, StoreEvent::Entry { .. }))
    };
    assert!(entries(&synced(&mut one).await));
    drop(server);
    site.forget().unwrap();
    let _server = site.start();
    assert!(!entries(&synced(&mut one).await), "an empty server has none");
}

#[tokio::test]
async fn a_removed_key_is_delivered_with_the_revision_that_the_next_write_replaces() {
    let site = NatsSite::new().unwrap();
    let Some(_server) = site.start() else { return };
    let mut one = store(&site, "main", 1).await;
    synced(&mut one).await;
    let WriteOutcome::Accepted(_) = one.write(&write(b"1", 0)).await else {
        panic!("the key has no entry")
    };
    let client = async_nats::connect(site.url()).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let bucket = context.get_key_value("conductor_main").await.unwrap();
    bucket.delete(key().to_string()).await.unwrap();
    let removed = |event: StoreEvent| match event {
        StoreEvent::Removed {
            key: removed,
            revision,
        } if removed == key() => Some(revision),
        _ => None,
    };
    let revision = loop {
        if let Some(revision) = removed(one.next().await) {
            break revision;
        }
    };
    let mut late = store(&site, "main", 2).await;
    let found = synced(&mut late).await;
    assert_eq!(found.into_iter().find_map(removed), Some(revision));
    assert_eq!(one.write(&write(b"2", 0)).await, WriteOutcome::Conflict);
    let read = one.read(&key()).await.unwrap();
    assert_eq!(read.and_then(removed), Some(revision));
    let WriteOutcome::Accepted(_) = one.write(&write(b"2", revision)).await else {
        panic!("the revision is that of the removal")
    };
}
