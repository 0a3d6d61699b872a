//! Tests of budgets that follow the workers: requests at workers out of service use none of the others' room.

use std::time::Duration;

use futures_util::future::join;
use http::StatusCode;
use proxy::{AdmissionSpec, BudgetSpec};

use crate::client::{chat, send};
use crate::eventually;
use crate::policy::{Scripted, route};
use crate::router::{Builder, Router, router};
use crate::worker::{Worker, streaming};

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

#[tokio::test]
async fn a_draining_worker_has_room_for_its_own_requests_only() {
    check_room_of_the_other(|a, b| {
        with_budget(1, &[("a", a), ("b", b)]).with(|builder| builder.health.draining = vec!["b".into()])
    })
    .await;
}
