//! Tests of queued requests whose pool changes while they wait.

use futures_util::future::join;
use http::StatusCode;
use proxy::Authorization;

use crate::client::{chat, send};
use crate::eventually;
use crate::queue::{held, one_at_a_time};
use crate::router::{Builder, router};
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
