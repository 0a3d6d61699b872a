//! Decisions that may replace only the revision by which they were judged.

use agreement::{AgreedKey, AgreedKind, Judged};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::agreement::{MemoryStore, Router, router, until};

fn key() -> AgreedKey {
    AgreedKey::of(AgreedKind::Route, "r")
}

async fn until_value(router: &Router, value: i64) {
    until("the router has it", || {
        let view = router.handle.view();
        let known = view.stored(&key());
        known.is_some_and(|known| known.entry.value == value)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_gives_way_to_an_entry_that_came_after_its_judgement() {
    let (store, stop) = (MemoryStore::default(), CancellationToken::new());
    let (one, two) = (router(&store, "1", &stop), router(&store, "2", &stop));
    one.handle.propose_over(key(), json!(1), Judged::default(), None);
    until_value(&one, 1).await;
    until_value(&two, 1).await;
    let judged = one.handle.view().judged(&key());
    two.handle.propose_over(key(), json!(2), judged.clone(), None);
    until_value(&one, 2).await;
    one.handle.propose_over(key(), json!(3), judged, None);
    until("it is judged", || !one.handle.is_proposed(&key())).await;
    assert_eq!(store.accepted(), 2);
    let judged = one.handle.view().judged(&key());
    one.handle.propose_over(key(), json!(3), judged, None);
    until_value(&two, 3).await;
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_router_whose_judged_write_was_refused_reads_the_entry_without_its_watch() {
    let (store, stop) = (MemoryStore::default(), CancellationToken::new());
    let (one, two) = (router(&store, "1", &stop), router(&store, "2", &stop));
    until("the store is reached", || two.handle.view().is_synced).await;
    store.silence();
    one.handle.propose(key(), json!(1), None);
    until_value(&one, 1).await;
    assert!(two.handle.view().stored(&key()).is_none());
    two.handle.propose_over(key(), json!(2), Judged::default(), None);
    until_value(&two, 1).await;
    assert!(!two.handle.is_proposed(&key()));
    stop.cancel();
}
