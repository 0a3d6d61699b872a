//! Tests of placement: by the policy, by the fallback, after a failure, and after a reload.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use routing::{Rejection, Verdict};

use crate::client::{chat, post, send};
use crate::eventually;
use crate::log::Log;
use crate::policy::{Scripted, fault, route};
use crate::router::{Builder, router};
use crate::worker::{Leaving, Worker, json, streaming};

#[tokio::test]
async fn the_policy_chooses_by_what_it_was_shown() {
    let (a, b) = (Worker::named("a").await, Worker::named("b").await);
    let policy = Scripted::seeing(
        &[
            "request.max-tokens",
            "request.body-bytes",
            "request.stream",
            "request.priority",
            "request.prompt-tokens",
        ],
        &[
            "load.requests",
            "worker.weight",
            "cache.blocks",
            "prefix.any-tokens",
            "ttft.ewma-ms",
        ],
        |_| Ok(route(1)),
    );
    let router = router()
        .worker("a", &a.url())
        .worker("b", &b.url())
        .policy(policy.clone())
        .start()
        .await;
    let body = r#"{"model":"m","max_tokens":7,"stream":true}"#;
    let answer = send(router.address, post("/v1/completions", body)).await;
    assert_eq!(answer.header("x-conductor-worker"), Some("b"));
    let numbers = &policy.shown()[0];
    assert_eq!(numbers[..3], [7.0, body.len() as f64, 1.0]);
    assert!(numbers[3..5].iter().all(|unknown| unknown.is_nan()));
    for row in numbers[5..].chunks_exact(5) {
        assert_eq!(row[..2], [0.0, 1.0]);
        assert!(row[2..].iter().all(|unknown| unknown.is_nan()));
    }
}

#[tokio::test]
async fn a_failing_policy_is_replaced_by_the_fallback() {
    let worker = Worker::named("a").await;
    let policy = Scripted::new(|input| match input.request.seq {
        1 => Err(fault()),
        2 => Ok(route(7)),
        _ => Ok(Verdict::Pass),
    });
    let (log, router) = (
        Log::begin(),
        router().worker("a", &worker.url()).policy(policy).start().await,
    );
    for _ in 0..3 {
        let mut request = chat();
        request
            .headers_mut()
            .insert("x-request-id", "mine".parse().unwrap());
        assert_eq!(send(router.address, request).await.text().await, "a");
    }
    let warnings = log.lines("the policy failed to decide");
    assert!(warnings[0].contains("request=mine "), "{warnings:?}");
    let fault = |kind: &str| {
        router.metric(&format!(
            "conductor_policy_faults_total{{policy=\"scripted\",kind=\"{kind}\"}}"
        ))
    };
    assert_eq!((fault("trap"), fault("invalid-verdict")), (1.0, 1.0));
    assert_eq!(router.fallbacks("scripted"), [1.0, 2.0, 0.0]);
    let decided = |verdict: &str| {
        router.metric(&format!(
            "conductor_policy_decisions_total{{policy=\"scripted\",verdict=\"{verdict}\"}}"
        ))
    };
    assert_eq!(
        (decided("route"), decided("pass")),
        (0.0, 1.0),
        "a refused verdict is no decision"
    );
}

#[tokio::test]
async fn a_refused_connection_goes_to_the_next_worker_and_the_first_rests() {
    let (a, b) = (Leaving::start().await, Worker::named("b").await);
    let policy = Scripted::first(&[], &["load.requests"]);
    let router = router()
        .worker("a", &a.url)
        .worker("b", &b.url())
        .policy(policy.clone())
        .start()
        .await;
    a.leave().await;
    for _ in 0..2 {
        let answer = send(router.address, chat()).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.header("x-conductor-worker"), Some("b"));
    }
    let candidates: Vec<_> = policy.shown().iter().map(Vec::len).collect();
    assert_eq!(
        candidates,
        [2, 1, 1],
        "decided again without the first, which then rests"
    );
    assert_eq!(
        router.metric(r#"conductor_worker_failures_total{worker="a",kind="connect"}"#),
        1.0
    );
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 1.0);
}

#[tokio::test]
async fn a_worker_that_hangs_up_without_an_answer_is_passed_over() {
    let (a, b) = (Worker::hanging_up().await, Worker::named("b").await);
    let router = router().worker("a", &a.url()).worker("b", &b.url()).start().await;
    let answer = send(router.address, chat()).await;
    assert_eq!(answer.header("x-conductor-worker"), Some("b"));
    assert_eq!(b.received().len(), 1);
    assert_eq!(
        router.metric(r#"conductor_worker_failures_total{worker="a",kind="closed"}"#),
        1.0
    );
}

#[tokio::test]
async fn a_worker_that_answers_no_http_is_passed_over_and_rests() {
    let (log, a, b) = (Log::begin(), Worker::babbling().await, Worker::named("b").await);
    let router = router().worker("a", &a.url()).worker("b", &b.url()).start().await;
    for id in ["first", "second"] {
        let mut request = chat();
        request.headers_mut().insert("x-request-id", id.parse().unwrap());
        let answer = send(router.address, request).await;
        assert_eq!(answer.header("x-conductor-worker"), Some("b"));
    }
    assert_eq!((a.connections(), b.received().len()), (1, 2));
    assert_eq!(
        router.metric(r#"conductor_worker_failures_total{worker="a",kind="bad-answer"}"#),
        1.0
    );
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 1.0);
    let warnings = log.lines("is ejected");
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("request=first "), "{warnings:?}");
}

#[tokio::test]
async fn a_pool_that_lost_its_workers_is_unavailable_and_its_models_exist() {
    let worker = Worker::named("a").await;
    let mut router = router().worker("a", &worker.url()).start().await;
    router.change(crate::router::router());
    let tokenize = || post("/tokenize", r#"{"model":"m","prompt":"hi"}"#);
    for request in [chat(), tokenize()] {
        let answer = send(router.address, request).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.header("retry-after"), Some("1"));
        let text = answer.text().await;
        assert!(text.contains("the pool `main` has no workers"), "{text}");
    }
    assert_eq!(router.outcomes("unreachable"), 1.0);
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_meanwhile_is_replaced_and_no_worker_is_ejected() {
    let worker = Worker::start_closing(|_| async { json(200, "a") }).await;
    let router = router().worker("a", &worker.url()).start().await;
    for _ in 0..5 {
        assert_eq!(send(router.address, chat()).await.text().await, "a");
    }
    assert_eq!(worker.received().len(), 5);
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 0.0);
}

#[tokio::test]
async fn when_no_worker_can_be_reached_the_client_gets_an_error() {
    let router = router()
        .worker("a", &Worker::unreachable())
        .worker("b", &Worker::unreachable())
        .start()
        .await;
    for _ in 0..2 {
        let answer = send(router.address, chat()).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert!(answer.text().await.contains("\"code\":\"no_worker_reachable\""));
    }
    assert_eq!(router.outcomes("unreachable"), 2.0);
    assert_eq!((router.in_flight("a"), router.in_flight("b")), (0, 0));
}

#[tokio::test]
async fn no_more_workers_are_tried_than_allowed() {
    let workers = [
        Worker::hanging_up().await,
        Worker::hanging_up().await,
        Worker::hanging_up().await,
    ];
    let mut builder = router().with(|builder| builder.limits.attempts = 2);
    for (name, worker) in ["a", "b", "c"].iter().zip(&workers) {
        builder = builder.worker(name, &worker.url());
    }
    let router = builder.start().await;
    let answer = send(router.address, chat()).await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert!(answer.text().await.contains("\"code\":\"worker_closed\""));
    let tried = workers.iter().filter(|worker| worker.connections() > 0).count();
    assert_eq!(tried, 2);
}

#[tokio::test]
async fn a_rejection_reaches_the_client_with_its_reason() {
    let worker = Worker::named("a").await;
    let policy = Scripted::new(|_| {
        Ok(Verdict::Reject(Rejection {
            status: 429,
            retry_after_ms: 2_500,
            reason: "over budget".to_owned(),
        }))
    });
    let router = router().worker("a", &worker.url()).policy(policy).start().await;
    let answer = send(router.address, chat()).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.header("retry-after"), Some("3"));
    assert!(answer.text().await.contains("over budget"));
    assert!(worker.received().is_empty());
}

#[tokio::test]
async fn a_request_keeps_the_snapshot_it_began_with() {
    let (old, mut pens) = streaming().await;
    let new = Worker::named("new").await;
    let mut router_ = router().worker("a", &old.url()).start().await;
    let running = send(router_.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    router_.change(router().worker("b", &new.url()));
    assert_eq!(send(router_.address, chat()).await.text().await, "new");
    pen.send(Ok("data: [DONE]\n\n".into())).await.unwrap();
    drop(pen);
    assert_eq!(running.text().await, "data: [DONE]\n\n");
    assert_eq!(router_.snapshot().generation().0, 2);
    assert_eq!(
        router_.metric(r#"conductor_worker_attempts_total{worker="a"}"#),
        0.0,
        "forgotten"
    );
}

#[tokio::test]
async fn a_stream_does_not_keep_a_replaced_policy_alive() {
    let (worker, mut pens) = streaming().await;
    let policy = Scripted::first(&[], &[]);
    let old = Arc::downgrade(&policy);
    let mut router_ = router().worker("a", &worker.url()).policy(policy).start().await;
    let mut running = send(router_.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    pen.send(Ok("data: 1\n\n".into())).await.unwrap();
    running.piece().await.unwrap().unwrap();
    router_.change(router().worker("a", &worker.url()));
    eventually("the old policy is dropped", || old.strong_count() == 0).await;
    assert_eq!(router_.in_flight("a"), 1, "the stream goes on");
    pen.send(Ok("data: [DONE]\n\n".into())).await.unwrap();
    drop(pen);
    assert_eq!(running.text().await, "data: [DONE]\n\n");
}

#[tokio::test]
async fn a_worker_that_stays_keeps_its_connections() {
    let worker = Worker::named("a").await;
    let mut router_ = router().worker("a", &worker.url()).start().await;
    send(router_.address, chat()).await.text().await;
    router_.change(
        router()
            .worker("a", &worker.url())
            .worker("b", &Worker::unreachable()),
    );
    send(router_.address, chat()).await.text().await;
    assert_eq!(worker.connections(), 1);
}

#[tokio::test]
async fn a_rested_worker_is_tried_again_by_one_request() {
    let (a, b) = (Leaving::start().await, Worker::named("b").await);
    let lasting = router().worker("a", &a.url).worker("b", &b.url());
    let short = |builder: &mut Builder| builder.health.base_ejection_time = Duration::from_millis(100);
    let mut router = lasting.clone().with(short).start().await;
    a.leave().await;
    send(router.address, chat()).await.text().await;
    let attempts = r#"conductor_worker_attempts_total{worker="a"}"#;
    assert_eq!(router.metric(attempts), 1.0);
    eventually("its rest is over", || {
        router.metric(r#"conductor_worker_ejected{worker="a"}"#) == 0.0
    })
    .await;
    // The next rest outlasts the test.
    router.change(lasting);
    for _ in 0..3 {
        assert_eq!(send(router.address, chat()).await.text().await, "b");
    }
    assert_eq!(router.metric(attempts), 2.0, "it rests again after one more try");
}
