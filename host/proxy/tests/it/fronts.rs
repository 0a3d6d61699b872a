//! Tests of clients behind a proxy, which is trusted only if configured.

use std::future::pending;
use std::sync::Arc;

use http::{HeaderValue, Request};
use proxy::CorsSpec;
use tokio::task::JoinSet;

use crate::bodies::turned;
use crate::client::{chat, get, post, send};
use crate::cut::{access_log, lines};
use crate::eventually;
use crate::router::{Builder, router};
use crate::worker::{Worker, json};

const X_FORWARDED_FOR: &str = "x-forwarded-for";
const PAGE: &str = "https://chat.example";

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

#[tokio::test]
async fn refusals_before_a_request_is_read_have_an_id_and_can_be_read_by_pages() {
    let folder = tempfile::tempdir().unwrap();
    let record = access_log(&folder);
    let worker = Worker::start(|_| pending()).await;
    let limits = |builder: &mut Builder| {
        builder.record = record.clone();
        builder.edge.fronts = ["127.0.0.1/32".parse().unwrap()].into();
        builder.edge.per_address = Some(1);
        builder.edge.limits.url_bytes = 100;
        builder.edge.cors = Some(Arc::new(CorsSpec {
            origins: Some(vec![HeaderValue::from_static(PAGE)]),
            headers: HeaderValue::from_static("authorization"),
            max_age: HeaderValue::from_static("60"),
        }));
    };
    let router = router().worker("a", &worker.url()).with(limits).start().await;
    let address = router.address;
    let of_page = |path: &str| {
        let mut request = from("192.0.2.1", post(path, "{}"));
        request
            .headers_mut()
            .insert("origin", HeaderValue::from_static(PAGE));
        request
    };
    let long = send(address, of_page(&format!("/v1/messages?{}", "x".repeat(100)))).await;
    assert_eq!(long.status, 414);
    assert_eq!(long.header("access-control-allow-origin"), Some(PAGE));
    let id = long.header("request-id").unwrap().to_owned();
    assert_eq!(long.header("x-request-id"), Some(&*id));
    let text = long.text().await;
    assert!(text.contains(&format!(r#""request_id":"{id}""#)), "{text}");
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { send(address, from("192.0.2.1", chat())).await.status });
    eventually("one is under way", || router.in_flight("a") == 1).await;
    let full = send(address, of_page("/v1/completions")).await;
    assert_eq!(full.status, 429);
    assert_eq!(full.header("access-control-allow-origin"), Some(PAGE));
    assert_eq!(full.header("vary"), Some("origin"));
    let ids = [id, full.header("x-request-id").unwrap().to_owned()];
    waiting.shutdown().await;
    let lines = lines(&record, &folder);
    for (id, code) in ids.iter().zip(["url_too_long", "address_full"]) {
        let line = lines.iter().find(|line| line["request_id"] == **id).unwrap();
        assert_eq!(line["error_code"], code);
    }
}
