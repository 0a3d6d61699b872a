//! Tests of canaries: assignment to arms, reports of arms, and the stop of a canary.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use proxy::{ArmReport, CanaryVerdict, Measure, StopCause, StopRule};
use routing::RunNumber;

use crate::client::{chat, send};
use crate::policy::{Scripted, route};
use crate::router::{Builder, Router, of_run, router};
use crate::worker::{Leaving, Received, Worker, json, written};

/// Creates a policy of that name that always takes that row.
fn always(name: &'static str, row: u32) -> Arc<Scripted> {
    Scripted::named(name, &[], &[], move |_| Ok(route(row)))
}

/// Builds a router with two workers: the control sends to `a`, and the canary sends its share to `b`.
fn arms(a: &Worker, b: &Worker, share: u32) -> Builder {
    router()
        .worker("a", &a.url())
        .worker("b", &b.url())
        .policy(always("control", 0))
        .with(|builder| {
            builder.canaries = vec![(always("canary", 1), share)];
            // Ejection by failure rate is off, so that failing workers keep getting requests.
            builder.health.failure_min_requests = 0;
            builder.retries.statuses.clear();
        })
}

fn of_session(session: usize) -> Request<Bytes> {
    let mut request = chat();
    let name = format!("session-{session}").parse().unwrap();
    request.headers_mut().insert("x-session-id", name);
    request
}

/// Returns the worker that answers a request of that session.
async fn worker_of(router: &Router, session: usize) -> String {
    let answer = send(router.address, of_session(session)).await;
    let worker = answer.header("x-conductor-worker").unwrap().to_owned();
    answer.text().await;
    worker
}

/// Returns for each of many sessions whether it belongs to the canary.
async fn canary_has(router: &Router) -> Vec<bool> {
    let mut has = Vec::new();
    for session in 0..100 {
        has.push(worker_of(router, session).await == "b");
    }
    has
}

fn arm(router: &Router, arm: usize) -> ArmReport {
    router.snapshot().trials()[0].arms[arm].clone()
}

const STREAM: &str = "data: {\"n\":1}\n\ndata: {\"usage\":{\"prompt_tokens\":96,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":64}}}\n\ndata: [DONE]\n\n";

/// Starts a worker that streams after a pause.
async fn streaming_after(pause: Duration) -> Worker {
    Worker::start(move |_: Received| async move {
        tokio::time::sleep(pause).await;
        let (pen, answer) = written("text/event-stream");
        pen.send(Ok(STREAM.into())).await.unwrap();
        answer
    })
    .await
}

#[tokio::test]
async fn a_session_stays_in_its_arm_over_requests_and_reloads_and_a_raised_share_only_takes() {
    let (a, b) = (Worker::named("a").await, Worker::named("b").await);
    let built = arms(&a, &b, 3_000);
    let mut router = built.clone().start().await;
    let first = canary_has(&router).await;
    let count = first.iter().filter(|has| **has).count();
    assert!((15..=45).contains(&count), "{count}");
    assert_eq!(canary_has(&router).await, first);
    router.change(built.clone());
    assert_eq!(canary_has(&router).await, first);
    assert_eq!(arm(&router, 1).side.requests, 3 * count as u64, "over the reload");

    router.change(built.with(|builder| builder.canaries[0].1 = 6_000));
    let more = canary_has(&router).await;
    assert!(first.iter().zip(&more).all(|(before, after)| !before || *after));
    assert!(more.iter().filter(|has| **has).count() > count);
}

#[tokio::test]
async fn requests_without_a_session_are_shared_out_too() {
    let (a, b) = (Worker::named("a").await, Worker::named("b").await);
    let router = arms(&a, &b, 5_000).start().await;
    for _ in 0..100 {
        send(router.address, chat()).await.text().await;
    }
    assert!((25..=75).contains(&b.received().len()), "{}", b.received().len());
}

#[tokio::test]
async fn routers_of_different_runs_draw_different_lots_for_requests_of_the_same_numbers() {
    let (a, b) = (Worker::named("a").await, Worker::named("b").await);
    let mut placed = vec![];
    for run in [1 << 60, 1 << 60, 1 << 61] {
        let started = arms(&a, &b, 5_000).with(|builder| builder.record = of_run(RunNumber(run)));
        let router = started.start().await;
        let mut workers = vec![];
        for _ in 0..32 {
            let answer = send(router.address, chat()).await;
            workers.push(answer.header("x-conductor-worker").unwrap().to_owned());
            answer.text().await;
        }
        placed.push(workers);
    }
    assert_eq!(placed[0], placed[1]);
    assert_ne!(placed[0], placed[2]);
}

#[tokio::test]
async fn every_try_of_a_request_is_its_arms() {
    let (gone, b) = (Leaving::start().await, Worker::named("b").await);
    let canary = Scripted::named("canary", &[], &[], |_| Ok(route(0)));
    let control = always("control", 0);
    let router = router()
        .worker("gone", &gone.url)
        .worker("b", &b.url())
        .policy(control.clone())
        .with(|builder| builder.canaries = vec![(canary.clone(), 10_000)])
        .start()
        .await;
    gone.leave().await;
    assert_eq!(worker_of(&router, 1).await, "b");
    assert_eq!((canary.shown().len(), control.shown().len()), (2, 0));
}

#[tokio::test]
async fn only_an_arm_that_needs_tokens_has_them_learnt() {
    let worker = crate::worker::tokenizing().await;
    let canary = Scripted::named("canary", &["request.prompt-tokens"], &[], |_| Ok(route(0)));
    let plain = router()
        .worker("a", &worker.url())
        .policy(always("control", 0))
        .with(|builder| {
            builder.tokens = proxy::TokenSource::Worker {
                timeout: Duration::from_secs(10),
            };
        });
    let queries = |worker: &Worker| worker.paths().iter().filter(|path| *path == "/tokenize").count();
    let none = plain
        .clone()
        .with(|builder| builder.canaries = vec![(canary.clone(), 1)]);
    send(none.start().await.address, of_session(0)).await.text().await;
    assert_eq!(queries(&worker), 0);
    let all = plain.with(|builder| builder.canaries = vec![(canary.clone(), 10_000)]);
    send(all.start().await.address, of_session(0)).await.text().await;
    assert_eq!(queries(&worker), 1);
    assert_eq!(canary.shown(), [[9.0]]);
}

#[tokio::test]
async fn metrics_report_outcomes_by_arm() {
    let a = Worker::named("a").await;
    let (b, mut pens) = crate::worker::streaming().await;
    let router = arms(&a, &b, 10_000).start().await;
    let mut answer = send(router.address, of_session(0)).await;
    let pen = pens.recv().await.unwrap();
    let (first, rest) = STREAM.split_once("\n\n").unwrap();
    pen.send(Ok(format!("{first}\n\n").into())).await.unwrap();
    answer.piece().await.unwrap().unwrap();
    pen.send(Ok(rest.into())).await.unwrap();
    drop(pen);
    answer.text().await;
    let metric = |name: &str| {
        let labels = r#"pool="main",route="*",policy="canary""#;
        router.metric(&format!("conductor_arm_{name}{{{labels}}}"))
    };
    assert_eq!(metric("time_to_first_token_seconds_count"), 1.0);
    assert_eq!(metric("time_between_tokens_seconds_count"), 1.0);
    assert_eq!(
        (metric("prompt_tokens_total"), metric("cached_tokens_total")),
        (96.0, 64.0)
    );
    let complete =
        r#"conductor_arm_requests_total{pool="main",route="*",policy="canary",outcome="complete"}"#;
    assert_eq!(router.metric(complete), 1.0);
    let reported = arm(&router, 1);
    assert_eq!(
        (
            reported.side.requests,
            reported.side.failed,
            reported.side.cached_tokens
        ),
        (1, 0, 64)
    );
    assert_eq!(reported.side.ttft.unwrap().count, 1);
    assert_eq!((reported.verdict, reported.share), (CanaryVerdict::TooFew, 1.0));
    assert!(arm(&router, 0).is_control);
}

/// Sends requests of many sessions, some concurrently, until the canary is stopped.
async fn until_stopped(router: &Router, most: usize) -> ArmReport {
    for session in 0..most {
        send(router.address, of_session(session)).await.rest().await;
        let canary = arm(router, 1);
        if canary.stopped.is_some() {
            return canary;
        }
    }
    panic!("never stopped: {:?}", arm(router, 1))
}

const RULE: StopRule = StopRule {
    ttft_margin: 0.5,
    error_margin: 0.05,
    confidence: 0.95,
    least: 30,
    consecutive_failures: 0,
    stop: true,
};

#[tokio::test]
async fn a_canary_whose_requests_fail_is_stopped_and_stays_so_until_it_changes_or_is_resumed() {
    let a = Worker::named("a").await;
    let b = Worker::start(|_| async { json(500, "no") }).await;
    let built = arms(&a, &b, 5_000).with(|builder| builder.rule = RULE);
    let mut router = built.clone().start().await;
    let canary = until_stopped(&router, 400).await;
    let stop = canary.stopped.unwrap();
    let Some(StopCause::Compared(Measure::Errors, look)) = stop.cause else {
        panic!("{stop:?}")
    };
    assert!(look.low > 0.05 && look.samples >= 30, "{stop:?}");
    assert_eq!(canary.verdict, CanaryVerdict::Worse);
    let gauge = r#"conductor_canary_stopped{pool="main",route="*",policy="canary"}"#;
    assert_eq!(router.metric(gauge), 1.0);

    let reached = b.received().len();
    assert!(!canary_has(&router).await.contains(&true));
    router.change(built.clone());
    assert!(!canary_has(&router).await.contains(&true));
    assert_eq!(b.received().len(), reached);

    assert_eq!(router.snapshot().resume_canaries("control"), 0);
    assert_eq!(router.snapshot().resume_canaries("canary"), 1);
    assert_eq!(router.metric(gauge), 0.0);
    assert_eq!(arm(&router, 1).side.requests, 0, "nothing is held against it");
    assert!(canary_has(&router).await.contains(&true));

    until_stopped(&router, 400).await;
    router.change(built.with(|builder| builder.canaries[0].0 = always("canary", 0)));
    assert!(arm(&router, 1).stopped.is_none(), "another version");
}

#[tokio::test]
async fn a_canary_that_answers_nothing_is_stopped_after_a_few_requests() {
    let a = Worker::named("a").await;
    let b = Worker::start(|_| async { json(500, "no") }).await;
    let router = arms(&a, &b, 5_000).start().await;
    let canary = until_stopped(&router, 400).await;
    let stop = canary.stopped.unwrap();
    let Some(StopCause::ConsecutiveFailures { failures, .. }) = stop.cause else {
        panic!("{stop:?}")
    };
    // Sessions are divided at random, so the control may have few at first.
    assert!((5..30).contains(&failures), "{failures}");
    assert_eq!(
        (canary.verdict, b.received().len() as u64),
        (CanaryVerdict::Worse, failures)
    );
    assert!(!canary_has(&router).await.contains(&true));
}

#[tokio::test]
async fn a_canary_is_not_stopped_for_failures_of_all_workers() {
    let [a, b] = [
        Worker::start(|_| async { json(500, "no") }).await,
        Worker::start(|_| async { json(500, "no") }).await,
    ];
    let router = arms(&a, &b, 5_000).start().await;
    // The control gets the first request.
    while a.received().is_empty() {
        send(router.address, chat()).await.rest().await;
    }
    for session in 0..60 {
        send(router.address, of_session(session)).await.rest().await;
    }
    let canary = arm(&router, 1);
    assert!(canary.side.failed_in_a_row > 5, "{canary:?}");
    assert!(canary.stopped.is_none(), "{canary:?}");
}

#[tokio::test]
async fn a_canary_whose_first_tokens_come_late_is_stopped() {
    let (a, b) = (
        streaming_after(Duration::ZERO).await,
        streaming_after(Duration::from_millis(60)).await,
    );
    let router = arms(&a, &b, 5_000)
        .with(|builder| builder.rule = RULE)
        .start()
        .await;
    let stop = until_stopped(&router, 400).await.stopped.unwrap();
    let Some(StopCause::Compared(Measure::Ttft, look)) = stop.cause else {
        panic!("{stop:?}")
    };
    assert!(look.low > 0.5, "{stop:?}");
    assert!(!canary_has(&router).await.contains(&true));
}

#[tokio::test]
async fn a_worse_canary_goes_on_where_it_is_only_to_be_reported() {
    let a = Worker::named("a").await;
    let b = Worker::start(|_| async { json(503, "no") }).await;
    let rule = StopRule { stop: false, ..RULE };
    let router = arms(&a, &b, 5_000)
        .with(|builder| builder.rule = rule)
        .start()
        .await;
    for session in 0..200 {
        send(router.address, of_session(session)).await.rest().await;
    }
    let canary = arm(&router, 1);
    assert_eq!(
        (canary.verdict, canary.stopped.is_none()),
        (CanaryVerdict::Worse, true)
    );
    assert!(canary_has(&router).await.contains(&true));
}
