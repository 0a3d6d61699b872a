//! Tests of a process above its memory limit.

use crate::bodies::{half, read_all, turned};
use crate::client::{chat, get, send};
use crate::eventually;
use crate::router::{Builder, router};
use crate::worker::Worker;

/// Limit that any process exceeds.
const TOO_LITTLE: u64 = 1 << 20;
const STAGE: &str = "conductor_memory_stage";

#[tokio::test]
async fn requests_are_refused_but_health_is_answered_while_memory_is_short() {
    let worker = Worker::named("answer").await;
    let start = router().worker("a", &worker.url());
    let with = |limit| {
        let start = start.clone();
        start.with(|builder: &mut Builder| builder.edge.bodies.memory = limit)
    };
    let mut router = with(Some(1 << 50)).start().await;
    router.readiness.mark_ready();
    assert_eq!(send(router.address, chat()).await.status, 200);
    assert_eq!(router.metric(STAGE), 0.0);
    assert_eq!(
        router.metric("conductor_memory_limit_bytes"),
        (1_u64 << 50) as f64
    );
    assert!(router.metric("conductor_memory_resident_bytes") > TOO_LITTLE as f64);
    let arriving = half(router.address, 50_000).await;
    eventually("a body arrives", || {
        router.metric("conductor_unfinished_bodies") == 1.0
    })
    .await;

    router.change(with(Some(TOO_LITTLE)));
    eventually("it is noticed", || router.metric(STAGE) == 3.0).await;
    let answer = read_all(arriving).await;
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("memory_full"),
        "{answer}"
    );
    let refused = send(router.address, chat()).await;
    assert_eq!(
        (refused.status.as_u16(), refused.header("retry-after")),
        (503, Some("1"))
    );
    assert!(refused.text().await.contains("memory_full"));
    assert_eq!(send(router.address, get("/health")).await.status, 200);
    assert_eq!(send(router.address, get("/version")).await.status, 200);
    let mut probe = get("/health");
    *probe.method_mut() = http::Method::HEAD;
    assert_eq!(send(router.address, probe).await.status, 200);
    let unready = send(router.address, get("/readyz")).await;
    assert_eq!(unready.status, 503);
    assert!(unready.text().await.contains("memory is short"));
    assert_eq!(turned(&router, "memory-full"), 2.0);

    router.change(with(None));
    eventually("it is over", || router.metric(STAGE) == 0.0).await;
    assert_eq!(send(router.address, get("/readyz")).await.status, 200);
    assert_eq!(send(router.address, chat()).await.status, 200);
    assert_eq!(router.metric("conductor_memory_stage_changes_total"), 2.0);
}
