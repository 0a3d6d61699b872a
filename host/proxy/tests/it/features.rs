//! Tests of the numbers that policies see, against the actual events.

use std::time::Duration;

use futures_util::future::join;
use http::StatusCode;
use proxy::AdmissionSpec;
use routing::{DpRank, Hold, Role, Verdict};

use crate::client::{chat, send};
use crate::eventually;
use crate::policy::{Scripted, route};
use crate::router::{router, spec};
use crate::worker::{Worker, streaming};

#[tokio::test]
async fn failed_attempts_are_counted_for_the_request_and_the_worker() {
    let gone = Worker::unreachable();
    let policy = Scripted::first(
        &["request.tried", "pool.workers"],
        &["worker.failures", "worker.dp-rank", "worker.name-hash"],
    );
    let mut ranked = spec(Role::Mixed, "b", &gone);
    ranked.rank = Some(DpRank(3));
    let router = router()
        .worker("a", &gone)
        .specified(ranked)
        .policy(policy.clone())
        .start()
        .await;
    assert!(send(router.address, chat()).await.status.is_server_error());
    let shown = policy.shown();
    assert_eq!(shown[0][..3], [0.0, 2.0, 0.0], "nothing has failed");
    assert!(shown[0][3].is_nan(), "it is all there is at its address");
    assert_eq!(shown[0][6], 3.0);
    assert_ne!(shown[0][4], shown[0][7], "hashes of two names");
    assert_eq!(shown[1][..2], [1.0, 2.0], "the other is tried");

    // Both are ejected, and are candidates for lack of others.
    send(router.address, chat()).await;
    assert_eq!(policy.shown()[2][..3], [0.0, 2.0, 1.0]);
}

#[tokio::test]
async fn waiting_and_decoding_requests_are_distinguished() {
    let (worker, mut pens) = streaming().await;
    let policy = Scripted::first(
        &[],
        &[
            "load.queued",
            "load.decoding",
            "load.decoding-tokens",
            "load.prompt-tokens",
            "worker.age-ms",
            "ttft.p90-ms",
            "tbt.ewma-ms",
        ],
    );
    let router = router()
        .worker("a", &worker.url())
        .policy(policy.clone())
        .start()
        .await;
    let (_first, _first_pen) = (send(router.address, chat()).await, pens.recv().await);
    let (_second, _second_pen) = (send(router.address, chat()).await, pens.recv().await);
    let shown = policy.shown();
    assert_eq!(shown[0][..4], [0.0; 4]);
    let [queued, decoding, decoding_tokens, prompt_tokens] = shown[1][..4] else {
        panic!("{shown:?}")
    };
    assert_eq!(queued + decoding, 1.0);
    assert_eq!(decoding_tokens, decoding * prompt_tokens);
    assert!(shown[1][4] >= shown[0][4] && shown[0][4] >= 0.0);
    assert!(
        shown
            .iter()
            .all(|numbers| numbers[5].is_nan() && numbers[6].is_nan())
    );
}

#[tokio::test]
async fn a_held_request_has_columns_of_the_others_and_of_its_time_left() {
    let (worker, mut pens) = streaming().await;
    let policy = Scripted::seeing(
        &["pool.queued", "request.hold-left-ms"],
        &["load.requests"],
        |input| {
            Ok(if input.numbers[2] >= 1.0 {
                Verdict::Queue(Hold {
                    order: 0.0,
                    ask_again_ms: 10,
                    waits_for: None,
                })
            } else {
                route(0)
            })
        },
    );
    let router = router()
        .worker("a", &worker.url())
        .policy(policy.clone())
        .start()
        .await;
    let first = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    let others = join(send(router.address, chat()), send(router.address, chat()));
    let release = async {
        eventually("both are held and were decided again", || {
            policy.shown().iter().filter(|numbers| numbers[0] == 1.0).count() >= 2
        })
        .await;
        drop(pen);
        first.text().await;
        // The other requests are dispatched one after the other.
        drop(pens.recv().await.unwrap());
    };
    let ((second, third), ()) = join(others, release).await;
    assert_eq!((second.status, third.status), (StatusCode::OK, StatusCode::OK));
    let shown = policy.shown();
    let left = |numbers: &Vec<f64>| numbers[1];
    assert_eq!(left(&shown[0]), 10_000.0, "never held: all of it is left");
    assert!(shown.iter().all(|numbers| numbers[0] <= 1.0), "{shown:?}");
    assert!(shown.iter().any(|numbers| left(numbers) < 10_000.0), "{shown:?}");
}

#[tokio::test]
async fn the_hold_time_left_is_nan_without_a_queue() {
    let worker = Worker::named("a").await;
    let policy = Scripted::first(&["request.hold-left-ms", "pool.queued"], &[]);
    let router = router()
        .worker("a", &worker.url())
        .policy(policy.clone())
        .with(|builder| builder.queue_limit = 0)
        .start()
        .await;
    send(router.address, chat()).await;
    let numbers = &policy.shown()[0];
    assert!(numbers[0].is_nan() && numbers[1] == 0.0, "{numbers:?}");
}

#[tokio::test]
async fn the_target_of_the_first_token_is_the_routes_else_the_pools() {
    let worker = Worker::named("a").await;
    for (pool, route, expected) in [(5, Some(2), 2_000.0), (5, None, 5_000.0)] {
        let policy = Scripted::first(&["request.ttft-target-ms"], &[]);
        let router = router()
            .worker("a", &worker.url())
            .policy(policy.clone())
            .with(|builder| {
                builder.admission = Some(AdmissionSpec {
                    ttft_target: Some(Duration::from_secs(pool)),
                    ..AdmissionSpec::default()
                });
                builder.objectives.ttft_target = route.map(Duration::from_secs);
            })
            .start()
            .await;
        send(router.address, chat()).await;
        assert_eq!(policy.shown(), [[expected]]);
    }
}
