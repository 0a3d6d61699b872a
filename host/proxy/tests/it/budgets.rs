//! Tests of budgets that follow the workers: requests at workers out of service use none of the others' room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join;
use http::StatusCode;
use proxy::{AdmissionSpec, BudgetSpec, ProbeSpec};

use crate::client::{chat, send};
use crate::eventually;
use crate::policy::{Scripted, route};
use crate::router::{Builder, Router, router};
use crate::worker::{Received, Worker, json, streaming};

/// Builds a router whose budget has room for this number of requests at each worker. The last candidate gets them.
fn with_budget(of_each: u64, workers: &[(&str, &Worker)]) -> Builder {
    let start = router()
        .policy(Scripted::seeing(&[], &["load.requests"], |input| {
            Ok(route(input.numbers.len() as u32 - 1))
        }))
        .with(|builder| {
            builder.queue_timeout = Duration::from_secs(5);
            builder.admission = Some(AdmissionSpec {
                requests: BudgetSpec::Auto {
                    per_worker: Some(of_each),
                },
                ..AdmissionSpec::default()
            });
        });
    let add = |router: Builder, (name, worker): &(&str, &Worker)| router.worker(name, &worker.url());
    workers.iter().fold(start, add)
}

async fn waits(router: &Router, count: f64) {
    eventually("so many wait", || router.pool_metric("queue_length") == count).await;
}

/// Checks that a long request on `b`, which the change takes out of service, uses no room of `a`.
async fn check_room_of_the_other(change: impl Fn(&Worker, &Worker) -> Builder) {
    let ((a, mut pens_of_a), (b, mut pens_of_b)) = (streaming().await, streaming().await);
    let mut router = with_budget(1, &[("a", &a), ("b", &b)]).start().await;
    let long = send(router.address, chat()).await;
    let pen_of_long = pens_of_b.recv().await.unwrap();
    router.change(change(&a, &b));
    let at_a = send(router.address, chat()).await;
    assert_eq!(at_a.header("x-conductor-worker"), Some("a"));
    let pen_at_a = pens_of_a.recv().await.unwrap();
    let third = send(router.address, chat());
    let rest = async {
        waits(&router, 1.0).await;
        drop(pen_of_long);
        long.text().await;
        let used = r#"conductor_budget_used{pool="main",budget="requests"}"#;
        eventually("its permit is returned", || router.metric(used) == 1.0).await;
        // Long enough for the next one to be admitted by mistake.
        tokio::time::sleep(Duration::from_millis(50)).await;
        waits(&router, 1.0).await;
        drop(pen_at_a);
        at_a.text().await;
        drop(pens_of_a.recv().await.unwrap());
    };
    let (third, ()) = join(third, rest).await;
    assert_eq!(third.status, StatusCode::OK);
}

#[tokio::test]
async fn requests_that_a_removed_worker_finishes_use_no_room_of_the_others() {
    check_room_of_the_other(|a, _| with_budget(1, &[("a", a)])).await;
}

#[tokio::test]
async fn requests_at_a_worker_that_moved_to_another_pool_use_no_room_of_the_others() {
    let moved = |a: &Worker, b: &Worker| {
        with_budget(1, &[("a", a), ("b", b)]).with(|builder| builder.spare = vec!["b"])
    };
    check_room_of_the_other(moved).await;
}

#[tokio::test]
async fn a_worker_that_moves_back_takes_no_request_into_the_budget_of_the_pool_it_leaves() {
    let ((a, _), (b, mut pens_of_b), (c, _)) = (streaming().await, streaming().await, streaming().await);
    let with_spare = |spare: &[&'static str]| {
        with_budget(1, &[("a", &a), ("b", &b), ("c", &c)]).with(|builder| builder.spare = spare.to_vec())
    };
    let mut router = with_spare(&["c"]).start().await;
    let long = send(router.address, chat()).await;
    let pen = pens_of_b.recv().await.unwrap();
    router.change(with_spare(&["b", "c"]));
    router.change(with_spare(&["c"]));
    let limit = r#"conductor_budget_limit{pool="spare",budget="requests"}"#;
    assert_eq!(router.metric(limit), 1.0);
    drop(pen);
    long.text().await;
}

#[tokio::test]
async fn requests_that_a_removed_worker_finishes_are_no_use_for_the_other_routers() {
    let ((a, _pens_of_a), (b, mut pens_of_b)) = (streaming().await, streaming().await);
    let both = || with_budget(1, &[("a", &a), ("b", &b)]);
    for change in [
        with_budget(1, &[("a", &a)]),
        both().with(|builder| builder.spare = vec!["b"]),
    ] {
        let mut router = both().start().await;
        let long = send(router.address, chat()).await;
        let pen = pens_of_b.recv().await.unwrap();
        let shared = |router: &Router| router.snapshot().pool_shares()[0].budget().requests;
        assert_eq!(shared(&router), 1);
        router.change(change);
        let used = r#"conductor_budget_used{pool="main",budget="requests"}"#;
        assert_eq!(router.metric(used), 1.0);
        assert_eq!(shared(&router), 0);
        drop(pen);
        long.text().await;
    }
}

/// Starts a worker that answers its probes well while that is set, and requests at once.
async fn well_while(is_well: &Arc<AtomicBool>) -> Worker {
    let is_well = Arc::clone(is_well);
    Worker::start(move |request: Received| {
        let is_unwell = request.uri.path() == "/health" && !is_well.load(Ordering::SeqCst);
        async move { json(if is_unwell { 503 } else { 200 }, "{}") }
    })
    .await
}

#[tokio::test]
async fn a_queued_request_goes_to_a_worker_that_is_back_in_service() {
    let busy = Worker::start(|request: Received| async move {
        if request.uri.path() != "/health" {
            std::future::pending::<()>().await;
        }
        json(200, "{}")
    })
    .await;
    let is_well = Arc::new(AtomicBool::new(true));
    let back = well_while(&is_well).await;
    let built = with_budget(1, &[("a", &busy), ("b", &back)]).with(|builder| {
        builder.health.slow_start = Duration::ZERO;
        builder.health.probe = Some(ProbeSpec {
            interval: Duration::from_millis(10),
            timeout: Duration::from_secs(10),
            ..ProbeSpec::default()
        });
    });
    let mut router = built.clone().start().await;
    is_well.store(false, Ordering::SeqCst);
    let ejected = r#"conductor_worker_ejected{worker="b"}"#;
    eventually("it is out of service", || router.metric(ejected) == 1.0).await;
    // Recomputes the budget.
    router.change(built);
    let address = router.address;
    let mut long = tokio::task::JoinSet::new();
    long.spawn(async move { send(address, chat()).await.status });
    eventually("it is at work", || router.in_flight("a") == 1).await;
    let second = send(address, chat());
    let recovery = async {
        waits(&router, 1.0).await;
        is_well.store(true, Ordering::SeqCst);
    };
    let (second, ()) = join(second, recovery).await;
    assert_eq!(second.status, StatusCode::OK, "no other request arrived or ended");
    assert_eq!(second.header("x-conductor-worker"), Some("b"));
}

#[tokio::test]
async fn a_draining_worker_has_room_for_its_own_requests_only() {
    check_room_of_the_other(|a, b| {
        with_budget(1, &[("a", a), ("b", b)]).with(|builder| builder.health.draining = vec!["b".into()])
    })
    .await;
}
