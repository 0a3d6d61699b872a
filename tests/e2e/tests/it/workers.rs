//! Workers that fail.

use harness::TestRouter;
use http::StatusCode;

use crate::{chat, fast_fleet, router_over};

async fn status(router: &TestRouter) -> StatusCode {
    router
        .client
        .post("/v1/chat/completions", &chat("hi", false))
        .await
        .unwrap()
        .status
}

#[tokio::test]
async fn a_dead_worker_costs_no_request() {
    let fleet = fast_fleet(3).await;
    let router = router_over(&fleet, "round-robin").await;
    let dead = fleet.engines[1].faults();
    dead.refuse_connections().await.unwrap();
    for _ in 0..12 {
        assert_eq!(status(&router).await, StatusCode::OK);
    }
}

#[tokio::test]
async fn without_any_worker_the_client_gets_an_explained_error() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "cache-aware").await;
    let dead = fleet.engines[0].faults();
    dead.refuse_connections().await.unwrap();
    let answer = router
        .client
        .post("/v1/chat/completions", &chat("hi", false))
        .await
        .unwrap();
    assert!(answer.status.is_server_error(), "{}", answer.status);
    assert!(answer.json().unwrap()["error"]["message"].is_string());
}

#[tokio::test]
async fn the_drain_finishes_a_running_stream_and_refuses_new_work() {
    let fleet = harness::Fleet::start(1, |_, config| config.time_scale = 5.0)
        .await
        .unwrap();
    let router = router_over(&fleet, "round-robin").await;
    let mut body = chat("hello", true);
    body["max_tokens"] = 20.into();
    let mut stream = router.client.open("/v1/chat/completions", &body).await.unwrap();
    assert!(stream.chunk().await.unwrap().is_some());
    let rest = async {
        let mut text = String::new();
        while let Some(chunk) = stream.chunk().await.unwrap() {
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        text
    };
    let (exit, text) = tokio::join!(router.stop(), rest);
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(exit.unwrap(), conductor::Exit::Success);
}
