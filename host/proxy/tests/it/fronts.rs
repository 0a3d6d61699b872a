//! Tests of clients behind a proxy, which is trusted only if configured.

use std::future::pending;

use http::{HeaderValue, Request};
use tokio::task::JoinSet;

use crate::bodies::turned;
use crate::client::{chat, get, send};
use crate::eventually;
use crate::router::{Builder, router};
use crate::worker::{Worker, json};

const X_FORWARDED_FOR: &str = "x-forwarded-for";

fn from<B>(address: &'static str, mut request: Request<B>) -> Request<B> {
    let headers = request.headers_mut();
    headers.insert(X_FORWARDED_FOR, HeaderValue::from_static(address));
    request
}

#[tokio::test]
async fn addresses_from_other_sources_than_a_front_are_neither_believed_nor_passed_on() {
    let worker = Worker::named("answer").await;
    let one = |builder: &mut Builder| builder.edge.per_address = Some(1);
    let start = router().worker("a", &worker.url()).with(one);
    let mut router = start.clone().start().await;
    assert_eq!(send(router.address, from("192.0.2.1", chat())).await.status, 200);
    let front = |builder: &mut Builder| builder.edge.fronts = ["127.0.0.0/8".parse().unwrap()].into();
    router.change(start.with(front));
    assert_eq!(send(router.address, from("192.0.2.1", chat())).await.status, 200);
    let received = worker.received();
    let passed: Vec<_> = received
        .iter()
        .map(|request| request.headers.get(X_FORWARDED_FOR))
        .collect();
    assert!(passed[passed.len() - 2].is_none());
    assert_eq!(passed[passed.len() - 1].unwrap(), "192.0.2.1");
}

#[tokio::test]
async fn an_address_behind_a_front_has_as_many_requests_as_it_may_and_others_go_on() {
    let worker = Worker::start(|request| async move {
        if request
            .headers
            .get(X_FORWARDED_FOR)
            .is_some_and(|from| from == "192.0.2.1")
        {
            pending::<()>().await;
        }
        json(200, "{}")
    })
    .await;
    let limits = |builder: &mut Builder| {
        builder.edge.fronts = ["127.0.0.1/32".parse().unwrap()].into();
        builder.edge.per_address = Some(2);
    };
    let router = router().worker("a", &worker.url()).with(limits).start().await;
    let address = router.address;
    let mut waiting = JoinSet::new();
    for _ in 0..2 {
        waiting.spawn(async move { send(address, from("192.0.2.1", chat())).await.status });
    }
    eventually("two are under way", || router.in_flight("a") == 2).await;
    let refused = send(address, from("192.0.2.1", chat())).await;
    assert_eq!(
        (refused.status.as_u16(), refused.header("retry-after")),
        (429, Some("1"))
    );
    assert!(refused.text().await.contains("address_full"));
    assert_eq!(turned(&router, "address-full"), 1.0);
    assert_eq!(send(address, from("192.0.2.1", get("/health"))).await.status, 200);
    // The client may have written the entries before it.
    assert_eq!(
        send(address, from("192.0.2.1, 192.0.2.2", chat())).await.status,
        200
    );
    waiting.shutdown().await;
    eventually("they have left", || router.in_flight("a") == 0).await;
}
