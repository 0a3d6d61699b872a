//! Start of a router that waits for the decisions of its fleet, in paused time.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use replica_plane::{AgreedStart, AgreementMetrics};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agreement::{MemoryStore, router, until};

/// Returns a router's wait, with the registry of its metrics.
fn wait(router: &crate::agreement::Router) -> (AgreedStart, Registry) {
    let mut registry = Registry::default();
    let metrics = Arc::new(AgreementMetrics::register(&mut registry));
    (AgreedStart::new(router.handle.clone(), metrics), registry)
}

fn is_early(registry: &Registry) -> bool {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text.contains("conductor_replicas_agreed_early_start 1\n")
}

#[tokio::test(start_paused = true)]
async fn a_start_without_the_fleets_decisions_ends_after_a_bounded_time_and_is_counted() {
    for (store, seconds) in [(MemoryStore::away(), 2), (MemoryStore::default(), 10)] {
        let stop = CancellationToken::new();
        let router = router(&store, "1", &stop);
        let (start, registry) = wait(&router);
        let begun = Instant::now();
        start.wait().await;
        assert_eq!(begun.elapsed(), Duration::from_secs(seconds), "in paused time");
        assert!(is_early(&registry));
        stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "a test ends its tasks with its runtime")]
async fn a_start_waits_until_the_router_follows_the_store_or_is_found_to_have_none() {
    for has_store in [true, false] {
        let (store, stop) = (MemoryStore::default(), CancellationToken::new());
        let router = router(&store, "1", &stop);
        let (start, registry) = wait(&router);
        let waiting = tokio::spawn(start.wait());
        until("the store is reached", || router.handle.view().is_synced).await;
        assert!(!waiting.is_finished());
        match has_store {
            true => router.handle.note_followed(),
            false => router.handle.note_alone(),
        }
        waiting.await.unwrap();
        assert!(!is_early(&registry));
        stop.cancel();
    }
}
