//! Tests of queued requests whose pool or policy changes while they wait.

use std::sync::Arc;

use futures_util::future::{join, join_all};
use http::StatusCode;
use proxy::Authorization;
use routing::{Hold, Policy, Verdict};

use crate::client::{chat, send};
use crate::eventually;
use crate::policy::{Scripted, route};
use crate::queue::{held, one_at_a_time};
use crate::router::{Builder, Router, router};
use crate::worker::{Received, Worker, json, streaming};

/// Returns a router over one worker, which holds requests while another is in flight.
fn over(name: &str, worker: &Worker) -> Builder {
    router().worker(name, &worker.url()).policy(one_at_a_time())
}

/// Sends a request that waits for a worker, and replaces the pool's worker and settings meanwhile. Returns the status
/// of the answer and the request that the second worker got.
async fn replaced(
    before: impl FnOnce(&mut Builder),
    after: impl FnOnce(&mut Builder),
) -> (StatusCode, Option<Received>) {
    let (first, mut pens) = streaming().await;
    let second = Worker::start(|_| async { json(200, "{}") }).await;
    let mut router = over("a", &first).with(before).start().await;
    let running = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    let mut request = chat();
    let key = "Bearer client".parse().unwrap();
    request.headers_mut().insert("authorization", key);
    let waiting = send(router.address, request);
    let replacing = async {
        held(&router, 1.0).await;
        router.change(over("b", &second).with(after));
        eventually("the worker was checked", || router.has_checked_all()).await;
        drop(pen);
        running.text().await;
    };
    let (answer, ()) = join(waiting, replacing).await;
    let mut received = second.received().into_iter();
    (answer.status, received.find(|request| request.method == "POST"))
}

#[tokio::test]
async fn a_request_that_moves_carries_the_key_of_its_later_pool() {
    let own = |key| Authorization::bearer(key).unwrap();
    for (before, after, expected) in [
        (own("old"), own("new"), Some("Bearer new")),
        (own("old"), Authorization::Pass, Some("Bearer client")),
        (own("old"), Authorization::Drop, None),
        (Authorization::Pass, Authorization::Drop, None),
        (Authorization::Drop, own("new"), Some("Bearer new")),
    ] {
        let to = format!("{before:?} to {after:?}");
        let moved = replaced(
            |with| with.authorization = before,
            |with| with.authorization = after,
        );
        let (status, received) = moved.await;
        assert_eq!(status, StatusCode::OK, "{to}");
        let received = received.unwrap();
        let key = received.headers.get("authorization");
        assert_eq!(key.map(|key| key.to_str().unwrap()), expected, "{to}");
    }
}

#[tokio::test]
async fn a_request_without_a_salt_does_not_move_to_a_pool_that_isolates_prefixes() {
    let isolating = |with: &mut Builder| with.isolate_prefixes = true;
    let (_, received) = replaced(|_| {}, isolating).await;
    assert!(received.is_none());
    let (status, received) = replaced(isolating, |_| {}).await;
    assert_eq!(status, StatusCode::OK);
    let body = received.unwrap().body;
    assert!(String::from_utf8_lossy(&body).contains("cache_salt"));
}

/// Creates a policy that holds every request until the queue is woken.
fn holding(name: &'static str) -> Arc<Scripted> {
    Scripted::named(name, &[], &[], |_| {
        Ok(Verdict::Queue(Hold {
            order: 0.0,
            ask_again_ms: 60_000,
            waits_for: None,
        }))
    })
}

/// Creates a policy that takes the first worker.
fn routing(name: &'static str) -> Arc<Scripted> {
    Scripted::named(name, &[], &[], |_| Ok(route(0)))
}

/// Holds three requests with the first configuration, and activates the second one. Returns the router and the policies
/// that the answers name.
async fn freed(before: Builder, after: Builder) -> (Router, Vec<String>) {
    let mut router = before.start().await;
    let address = router.address;
    let waiting = join_all((0..3).map(|_| send(address, chat())));
    let replacing = async {
        held(&router, 3.0).await;
        router.change(after);
    };
    let (answers, ()) = join(waiting, replacing).await;
    let named = answers.iter().map(|answer| {
        assert_eq!(answer.status, StatusCode::OK);
        answer.header("x-conductor-policy").unwrap().to_owned()
    });
    let named = named.collect();
    (router, named)
}

fn verdicts(router: &Router, policy: &str, verdict: &str) -> f64 {
    router.metric(&format!(
        r#"conductor_policy_decisions_total{{policy="{policy}",verdict="{verdict}"}}"#
    ))
}

#[tokio::test]
async fn held_requests_are_decided_at_once_by_the_present_policy_of_their_route() {
    let worker = Worker::named("a").await;
    let over = || router().worker("a", &worker.url());
    let (earlier, later) = (holding("mine"), routing("mine"));
    let (router, _) = freed(over().policy(earlier.clone()), over().policy(later.clone())).await;
    assert_eq!((earlier.shown().len(), later.shown().len()), (3, 3));
    assert_eq!(verdicts(&router, "mine", "queue"), 3.0);
    assert_eq!(verdicts(&router, "mine", "route"), 3.0);
    assert_eq!(router.outcomes("complete"), 3.0);
    assert_eq!(router.pool_metric("queue_wait_seconds_count"), 3.0);
    let kept = Arc::downgrade(&earlier);
    drop(earlier);
    eventually("the earlier policy is dropped", || kept.strong_count() == 0).await;
}

#[tokio::test]
async fn held_requests_of_a_canary_keep_it_by_name_and_return_to_the_control_without_it() {
    let worker = Worker::named("a").await;
    let over = |canaries: Vec<(Arc<dyn Policy>, u32)>| {
        let with = router().worker("a", &worker.url()).policy(routing("control"));
        with.with(|with| with.canaries = canaries)
    };
    let before = || over(vec![(holding("canary"), 10_000)]);
    let other = || (routing("other") as Arc<dyn Policy>, 1);
    let kept = over(vec![other(), (routing("canary"), 9_999)]);
    let (_, named) = freed(before(), kept).await;
    assert_eq!(named, ["canary@native"; 3]);
    let (router, named) = freed(before(), over(vec![other()])).await;
    assert_eq!(named, ["control@native"; 3]);
    assert_eq!(verdicts(&router, "control", "route"), 3.0);
    let arms = &router.snapshot().trials()[0].arms;
    let counted: Vec<u64> = arms.iter().map(|arm| arm.side.requests).collect();
    assert_eq!(counted, [0, 0], "the experiment began after they were assigned");
}
