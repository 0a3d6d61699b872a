//! Tests of pending workers: requests in the meantime, and the entry into service.

use std::time::Duration;

use http::StatusCode;
use proxy::{Health, ProbeSpec};
use routing::Dialect;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::client::{chat, get, send};
use crate::eventually;
use crate::router::{Builder, Router, router};
use crate::worker::{Leaving, Received, Worker, json, kept_address};

fn health(router: &Router, name: &str) -> Health {
    let pools = router.snapshot().report();
    let mut workers = pools.iter().flat_map(|pool| &pool.workers);
    let found = workers.find(|worker| &*worker.worker.spec().name == name);
    found.unwrap().health
}

/// Configures frequent probes whose timeout exceeds any test.
fn probed(builder: &mut Builder) {
    builder.health.probe = Some(ProbeSpec {
        interval: Duration::from_millis(10),
        timeout: Duration::from_secs(100),
        ..ProbeSpec::default()
    });
}

async fn readyz(router: &Router) -> (StatusCode, Value) {
    let answer = send(router.address, get("/readyz")).await;
    (answer.status, serde_json::from_str(&answer.text().await).unwrap())
}

#[tokio::test]
async fn a_worker_never_reached_gets_no_requests_while_another_is_in_service() {
    let b = Worker::named("b").await;
    let router = router()
        .worker("a", &Worker::unreachable())
        .worker("b", &b.url())
        .start()
        .await;
    for _ in 0..3 {
        assert_eq!(send(router.address, chat()).await.text().await, "b");
    }
    assert_eq!(
        router.metric(r#"conductor_worker_attempts_total{worker="a"}"#),
        0.0
    );
    assert_eq!(router.metric(r#"conductor_worker_pending{worker="a"}"#), 1.0);
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 0.0);
    assert_eq!(router.metric(r#"conductor_worker_pending{worker="b"}"#), 0.0);
}

#[tokio::test]
async fn a_request_before_the_first_check_has_ended_is_served_and_brings_its_worker_into_service() {
    let unprobed = Worker::start(|request: Received| async move {
        if request.uri.path() == "/health" {
            std::future::pending::<()>().await;
        }
        json(200, "a")
    })
    .await;
    let router = router()
        .worker("a", &unprobed.url())
        .with(probed)
        .start_at_once()
        .await;
    assert_eq!(health(&router, "a"), Health::Pending);
    assert_eq!(send(router.address, chat()).await.text().await, "a");
    assert_eq!(health(&router, "a"), Health::Ok);
}

#[tokio::test]
async fn an_answer_of_500_leaves_a_worker_pending() {
    let broken = Worker::start(|_| async { json(500, "no") }).await;
    let router = router().worker("a", &broken.url()).with(probed).start().await;
    assert_eq!(
        send(router.address, chat()).await.status,
        StatusCode::INTERNAL_SERVER_ERROR
    );
    assert_eq!(health(&router, "a"), Health::Pending);
}

/// Checks that a worker that starts later enters service without any request.
async fn check_comes_up_later(change: impl FnOnce(&mut Builder)) {
    let address = kept_address();
    let router = router()
        .worker("a", &format!("http://{address}"))
        .with(change)
        .start()
        .await;
    assert_eq!(health(&router, "a"), Health::Pending);
    let up = TcpListener::bind(address).await.unwrap();
    let mut answering = tokio::task::JoinSet::new();
    answering.spawn(async move {
        loop {
            let (mut stream, _) = up.accept().await.unwrap();
            if stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = stream.write_all(answer).await;
            }
        }
    });
    eventually("it is in service", || health(&router, "a") == Health::Ok).await;
    assert!(router.metric(r#"conductor_worker_probes_total{worker="a",result="passed"}"#) >= 1.0);
    router.readiness.mark_ready();
    assert_eq!(readyz(&router).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_worker_that_comes_up_later_enters_service_with_its_first_good_probe() {
    check_comes_up_later(|builder| {
        builder.health.probe = Some(ProbeSpec {
            // With probes at this interval, the test would time out.
            interval: Duration::from_secs(3_600),
            ..ProbeSpec::default()
        });
    })
    .await;
}

#[tokio::test]
async fn without_probes_a_bare_connection_brings_it_into_service() {
    check_comes_up_later(|builder| builder.health.probe = None).await;
}

#[tokio::test]
async fn the_router_is_not_ready_while_no_worker_was_ever_reached_and_names_them() {
    let router = router()
        .worker("a", &Worker::unreachable())
        .worker("b", &Worker::unreachable())
        .start()
        .await;
    router.readiness.mark_ready();
    let (status, page) = readyz(&router).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        page["reason"],
        "no worker of any pool is in service; pending: a, b"
    );
    let out = &page["pools"]["main"]["out_of_service"];
    assert_eq!(
        (&out[0]["worker"], &out[0]["health"]),
        (&"a".into(), &"pending".into())
    );
    let reason = out[0]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("never reached; the last failure: "),
        "{reason}"
    );
    assert!(
        out[0]["next_try_s"].is_number() && out[0]["for_s"].is_number(),
        "{page}"
    );
}

#[tokio::test]
async fn a_worker_that_stays_over_a_reload_keeps_its_state_and_a_new_one_is_pending() {
    let (gone, hung) = (
        Leaving::start().await,
        Worker::start(|_| std::future::pending()).await,
    );
    let mut router_ = router().worker("a", &gone.url).start().await;
    assert_eq!(health(&router_, "a"), Health::Ok);
    let url = gone.url.clone();
    gone.leave().await;
    router_.change(router().worker("a", &url).worker("b", &hung.url()).with(probed));
    assert_eq!(health(&router_, "a"), Health::Ok, "it was reached before");
    assert_eq!(health(&router_, "b"), Health::Pending);
}

#[tokio::test]
async fn a_router_whose_prefill_workers_alone_are_in_service_is_not_ready() {
    let prefill = Worker::named("p").await;
    let router = router()
        .pd(Dialect::Nixl)
        .prefill("p", &prefill.url())
        .decode("d", &Worker::unreachable())
        .start()
        .await;
    assert_eq!(health(&router, "p"), Health::Ok);
    router.readiness.mark_ready();
    let (status, page) = readyz(&router).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{page}");
    let reason = page["reason"].as_str().unwrap();
    assert!(
        reason.contains("no pool has a worker in service that can answer") && reason.ends_with("pending: d"),
        "{page}"
    );
    assert_eq!(
        page["pools"].as_object().unwrap().values().next().unwrap()["in_service"],
        1
    );
}
