//! Bytes of policies that the store does not give at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agreement::{AgreedKey, AgreedKind, StoreEvent};
use replica_plane::ObjectState;
use tokio_util::sync::CancellationToken;

use crate::agreement::{ABC, MemoryStore, ReadFault, Router, router, until};
use crate::pass;

fn start() -> (MemoryStore, Router, CancellationToken) {
    let (store, stop) = (MemoryStore::default(), CancellationToken::new());
    store.set_object(ABC, b"abc");
    let router = router(&store, "1", &stop);
    (store, router, stop)
}

async fn until_ready(router: &Router) {
    let ready = ObjectState::Ready(Arc::new(b"abc".to_vec()));
    until("the bytes are there", || router.handle.object(ABC) == ready).await;
}

#[tokio::test(start_paused = true)]
async fn bytes_are_read_again_after_the_store_failed() {
    let (store, router, stop) = start();
    until("the store is reached", || router.handle.view().is_synced).await;
    store.set_fault(Some(ReadFault::Error));
    for _ in 0..20 {
        assert_eq!(router.handle.object(ABC), ObjectState::Working);
        pass(250).await;
    }
    assert_eq!(store.reads(), 3, "at once, after 1 s and after 2 s more");
    store.set_fault(None);
    until_ready(&router).await;
    assert_eq!(store.reads(), 4);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn bytes_that_the_store_does_not_have_yet_are_read_again() {
    let (store, router, stop) = start();
    store.remove_object(ABC);
    for _ in 0..8 {
        assert_eq!(router.handle.object(ABC), ObjectState::Working);
        pass(250).await;
    }
    store.set_object(ABC, b"abc");
    until_ready(&router).await;
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn bytes_that_keep_failing_are_reported_and_read_on() {
    let (store, router, stop) = start();
    store.set_fault(Some(ReadFault::Error));
    until("the reason is shown", || match router.handle.object(ABC) {
        ObjectState::Failed(why) => why.contains("no leader"),
        _ => false,
    })
    .await;
    let reads = store.reads();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!((reads + 10..reads + 14).contains(&store.reads()), "once a minute");
    store.set_fault(None);
    until_ready(&router).await;
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn bytes_of_another_hash_are_not_read_again() {
    let (store, router, stop) = start();
    store.set_object(ABC, b"abcd");
    until("they are refused", || {
        matches!(router.handle.object(ABC), ObjectState::Failed(_))
    })
    .await;
    store.set_object(ABC, b"abc");
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(matches!(router.handle.object(ABC), ObjectState::Failed(_)));
    assert_eq!(store.reads(), 1);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn decisions_are_agreed_while_bytes_are_read() {
    let (store, router, stop) = start();
    store.set_fault(Some(ReadFault::Stall));
    let _ = router.handle.object(ABC);
    until("the read is under way", || store.reads() == 1).await;
    let key = AgreedKey::of(AgreedKind::Route, "r");
    router.handle.propose(key.clone(), serde_json::json!(1), []);
    pass(500).await;
    assert!(router.handle.view().stored(&key).is_some());
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_decision_without_bytes_is_agreed_while_the_bytes_of_another_one_are_refused() {
    let (store, router, stop) = start();
    store.refuse(Some(ABC));
    let [refused, other] = ["refused", "other"].map(|route| AgreedKey::of(AgreedKind::Route, route));
    let bytes = [(ABC.to_owned(), Arc::new(b"abc".to_vec()))];
    router
        .handle
        .propose(refused.clone(), serde_json::json!(1), bytes);
    pass(500).await;
    router.handle.propose(other.clone(), serde_json::json!(2), []);
    until("the other one is agreed", || {
        router.handle.view().stored(&other).is_some()
    })
    .await;
    let view = router.handle.view();
    assert!(view.is_proposed(&refused));
    assert!(view.refusal(&refused).unwrap().contains("maximum bytes exceeded"));
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!((14..20).contains(&store.puts()), "with backoff: {}", store.puts());
    store.refuse(None);
    until("it is agreed too", || {
        router.handle.view().stored(&refused).is_some()
    })
    .await;
    assert_eq!(router.handle.view().refusal(&refused), None);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn bytes_that_the_store_lost_are_stored_again_after_their_decision() {
    let (store, router, stop) = start();
    store.remove_object(ABC);
    let key = AgreedKey::of(AgreedKind::Route, "r");
    let bytes = [(ABC.to_owned(), Arc::new(b"abc".to_vec()))];
    router.handle.propose(key.clone(), serde_json::json!(1), bytes);
    until("it is agreed", || router.handle.view().stored(&key).is_some()).await;
    router.handle.propose(key.clone(), serde_json::json!(2), []);
    pass(1_000).await;
    assert_eq!(store.puts(), 1);
    store.remove_object(ABC);
    store.deliver(&StoreEvent::Opened);
    store.deliver(&StoreEvent::Synced);
    until("the bytes are there again", || store.puts() == 2).await;
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn bytes_of_followed_decisions_are_stored_once_where_the_store_lost_them() {
    let (store, router, stop) = start();
    until("the store is reached", || router.handle.view().is_synced).await;
    assert_eq!(router.handle.view().openings, 1);
    store.remove_object(ABC);
    let bytes = Arc::new(b"abc".to_vec());
    store.refuse(Some(ABC));
    router.handle.keep_objects([(ABC.to_owned(), bytes)].into());
    until("it was tried", || store.puts() > 0).await;
    store.refuse(None);
    until_ready(&router).await;
    let puts = store.puts();
    for event in [StoreEvent::Opened, StoreEvent::Synced] {
        store.deliver(&event);
    }
    until("the store opened again", || router.handle.view().openings == 2).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(store.puts(), puts);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_offered_and_kept_are_stored_again_with_backoff_after_a_failure() {
    let (store, router, stop) = start();
    store.remove_object(ABC);
    let key = AgreedKey::of(AgreedKind::Route, "r");
    let bytes = BTreeMap::from([(ABC.to_owned(), Arc::new(b"abc".to_vec()))]);
    router
        .handle
        .propose(key.clone(), serde_json::json!(1), bytes.clone());
    until("it is agreed", || router.handle.view().stored(&key).is_some()).await;
    store.remove_object(ABC);
    store.refuse(Some(ABC));
    for event in [StoreEvent::Opened, StoreEvent::Synced] {
        store.deliver(&event);
    }
    router.handle.keep_objects(bytes);
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!((10..20).contains(&store.puts()), "with backoff: {}", store.puts());
    store.refuse(None);
    until_ready(&router).await;
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn bytes_of_all_followed_decisions_are_kept_however_many_they_are() {
    let (store, router, stop) = start();
    until("the store is reached", || router.handle.view().is_synced).await;
    let kept = (0..100_u8).map(|at| (format!("{at:02x}"), Arc::new(vec![at])));
    router.handle.keep_objects(kept.collect());
    until("all are stored", || store.puts() == 100).await;
    stop.cancel();
}
