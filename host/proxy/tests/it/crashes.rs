//! Tests of requests that make workers close their connections, and of workers that do so by themselves.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, StatusCode};

use crate::client::{chat, post, send};
use crate::eventually;
use crate::router::{Builder, Router, router};
use crate::worker::{HangUp, Worker, json};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn poison() -> Request<Bytes> {
    post("/v1/chat/completions", r#"{"model":"m","poison":true}"#)
}

/// Starts workers that answer everything but the poison, on which they hang up.
async fn fleet() -> Vec<Worker> {
    let mut workers = Vec::new();
    for name in NAMES {
        let worker = Worker::start(move |request| async move {
            let mut response = json(200, name);
            if request.body.windows(6).any(|part| part == b"poison") {
                response.extensions_mut().insert(HangUp);
            }
            response
        });
        workers.push(worker.await);
    }
    workers
}

async fn over(workers: &[Worker], change: impl FnOnce(&mut Builder)) -> Router {
    let mut builder = router();
    for (name, worker) in NAMES.iter().zip(workers) {
        builder = builder.worker(name, &worker.url());
    }
    builder.with(change).start().await
}

fn delivered(workers: &[Worker]) -> usize {
    workers.iter().map(|worker| worker.received().len()).sum()
}

fn resting(router: &Router) -> f64 {
    let series = NAMES.map(|name| format!("conductor_worker_ejected{{worker=\"{name}\"}}"));
    series.iter().map(|series| router.metric(series)).sum()
}

async fn check_refused(router: &Router) {
    let answer = send(router.address, poison()).await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert!(answer.text().await.contains("\"code\":\"worker_closed\""));
}

#[tokio::test]
async fn a_request_on_which_two_workers_hang_up_goes_no_further_and_no_worker_is_ejected() {
    let workers = fleet().await;
    let router = over(&workers, |builder| builder.limits.attempts = 4).await;
    check_refused(&router).await;
    assert_eq!((delivered(&workers), resting(&router)), (2, 0.0));
    // Once more, over kept connections.
    assert_eq!(send(router.address, chat()).await.text().await, "a");
    check_refused(&router).await;
    let most = 2 + 1 + 3;
    assert!(delivered(&workers) <= most, "{}", delivered(&workers));
    assert_eq!(resting(&router), 0.0);
}

#[tokio::test]
async fn the_number_of_workers_a_request_may_crash_is_configurable() {
    for (crashes, attempts, expected) in [(1, 4, 1), (3, 4, 3), (4, 3, 3)] {
        let workers = fleet().await;
        let router = over(&workers, |builder| {
            builder.limits.attempts = attempts;
            builder.retries.crashes = crashes;
        })
        .await;
        check_refused(&router).await;
        assert_eq!(delivered(&workers), expected);
        // If only one worker hung up, the failure is attributed to that worker.
        let expected = if expected == 1 { 1.0 } else { 0.0 };
        assert_eq!(resting(&router), expected);
    }
}

#[tokio::test]
async fn a_worker_that_hangs_up_where_another_answers_rests() {
    let workers = [Worker::hanging_up().await, Worker::named("b").await];
    let router = over(&workers, |_| {}).await;
    assert_eq!(send(router.address, chat()).await.text().await, "b");
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 1.0);
}

/// Worker that ends on the poison, with its listener and all its connections.
struct Mortal {
    url: String,
    life: Arc<Mutex<Option<Worker>>>,
}

impl Mortal {
    async fn start(name: &'static str) -> Self {
        let life = Arc::<Mutex<Option<Worker>>>::default();
        let end = Arc::clone(&life);
        let worker = Worker::start(move |request| {
            let end = Arc::clone(&end);
            async move {
                if request.body.windows(6).any(|part| part == b"poison") {
                    end.lock().unwrap().take();
                    std::future::pending::<()>().await;
                }
                json(200, name)
            }
        })
        .await;
        let url = worker.url();
        *life.lock().unwrap() = Some(worker);
        Self { url, life }
    }

    fn is_dead(&self) -> bool {
        self.life.lock().unwrap().is_none()
    }
}

#[tokio::test]
async fn a_request_that_ends_workers_ends_no_more_of_them_over_kept_connections() {
    let (mut builder, mut workers) = (router(), Vec::new());
    for name in NAMES {
        let worker = Mortal::start(name).await;
        builder = builder.worker(name, &worker.url);
        workers.push(worker);
    }
    let router = builder.with(|builder| builder.limits.attempts = 4).start().await;
    // The first worker's connection is kept.
    assert_eq!(send(router.address, chat()).await.text().await, "a");
    check_refused(&router).await;
    let dead = workers.iter().filter(|worker| worker.is_dead()).count();
    assert_eq!(dead, 2);
}

#[tokio::test]
async fn a_worker_that_hung_up_rests_also_if_the_client_leaves_during_the_retry() {
    let workers = [
        Worker::hanging_up().await,
        Worker::start(|_| std::future::pending()).await,
    ];
    let router = over(&workers, |_| {}).await;
    tokio::select! {
        _ = send(router.address, chat()) => unreachable!("the second worker never answers"),
        () = eventually("the second worker has the request", || workers[1].busy() == 1) => {}
    }
    eventually("the first worker rests", || {
        router.metric(r#"conductor_worker_ejected{worker="a"}"#) > 0.0
    })
    .await;
}
