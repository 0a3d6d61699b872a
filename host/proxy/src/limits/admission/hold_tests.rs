//! Tests of holds: their deadline, and the charge of a request that is held after a failure.

use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use placement::HoldTerms;
use routing::CapacityEvent;
use tokio::time::{Instant, advance};

use super::controller::AdmissionController;
use super::queue_entry::Unserved;
use super::tests::{budget, enter, hold, plain, request};

/// Returns the weighted tokens that a tenant was charged for.
fn charged(controller: &AdmissionController, name: &str) -> f64 {
    let mut share = 0.0;
    controller.queue().waiting.visit_tenants(|service| {
        if &**service.tenant == name {
            share = service.share;
        }
    });
    share
}

#[tokio::test(start_paused = true)]
async fn a_request_is_not_decided_again_once_its_time_has_ended() {
    let controller = budget(None, None);
    let patience = Duration::from_micros(30_101);
    let mut entry = enter(&controller, 1, patience, 0).unwrap();
    let started = Instant::now();
    let terms = HoldTerms {
        // Timers go by whole milliseconds, so this one is due after the deadline.
        reevaluate_after: Duration::from_micros(30_100),
        ..hold(0.0)
    };
    let seen = controller.releases();
    let ended = entry.hold(&request(0, "", 1), terms, seen, None).await;
    assert_eq!(ended.err(), Some(Unserved::Timeout));
    assert!(started.elapsed() >= patience);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_wait_is_without_the_time_that_the_first_arrival_was_at_a_worker() {
    let controller = budget(None, None);
    let turn = || controller.turn(Instant::now() + Duration::from_secs(60));
    let (mut retried, other) = (turn(), turn());
    advance(Duration::from_secs(20)).await;
    retried.since = Instant::now() - Duration::from_secs(5);
    let one = plain();
    let [mut first, mut second] = [retried, other].map(|turn| controller.enter(turn, 2, 0).unwrap());
    let mut first = Box::pin(first.hold(&one, hold(0.0), controller.releases(), None));
    assert!(poll!(&mut first).is_pending());
    assert_eq!(controller.oldest_wait(), Some(Duration::from_secs(5)));
    let mut second = Box::pin(second.hold(&one, hold(0.0), controller.releases(), None));
    assert!(poll!(&mut second).is_pending());
    assert_eq!(controller.oldest_wait(), Some(Duration::from_secs(20)));
}

#[tokio::test]
async fn a_request_that_is_held_after_a_failure_is_charged_once() {
    let controller = budget(Some(2), None);
    let one = request(0, "tenant", 100);
    let mut failed = controller.pass(|| request(0, "tenant", 100)).unwrap();
    failed.as_mut().unwrap().begin();
    assert_eq!(charged(&controller, "tenant"), 100.0);

    let mut entry = enter(&controller, 1, Duration::from_secs(60), 0).unwrap();
    let mut waits = Box::pin(entry.hold(&one, hold(0.0), controller.releases(), failed));
    assert!(poll!(&mut waits).is_pending());
    assert_eq!(charged(&controller, "tenant"), 0.0);
    Arc::clone(&controller).release(CapacityEvent::anywhere());
    let permit = waits.await.unwrap();
    assert_eq!(charged(&controller, "tenant"), 100.0);
    drop(permit);
    assert_eq!(charged(&controller, "tenant"), 0.0, "it was not sent");
}
