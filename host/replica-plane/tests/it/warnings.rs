//! Warnings of a store that is away, as an operator reads them in the log.

use std::time::Duration;

use agreement::StoreEvent;
use tokio_util::sync::CancellationToken;

use crate::agreement::{MemoryStore, router};
use crate::log::Log;

#[tokio::test(start_paused = true)]
async fn a_store_that_was_never_reached_is_logged_once_and_again_after_it_was_reached() {
    let log = Log::begin();
    let lines = || log.lines("");
    let (store, stop) = (MemoryStore::away(), CancellationToken::new());
    let _router = router(&store, "1", &stop);
    let lose = async || {
        store.deliver(&StoreEvent::Lost("jetstream unavailable".to_owned()));
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    lose().await;
    let first = lines();
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(
        first[0].contains("jetstream unavailable") && first[0].contains("decides alone"),
        "{first:?}"
    );
    lose().await;
    assert_eq!(lines().len(), 1, "a try that fails like the one before");
    for event in [StoreEvent::Opened, StoreEvent::Synced] {
        store.deliver(&event);
    }
    lose().await;
    assert_eq!(lines().len(), 2, "{:?}", lines());
    stop.cancel();
}
