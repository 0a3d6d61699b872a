//! The HTTP face: what clients send and get.

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{chat, fast_fleet, router_over, router_with};

#[tokio::test]
async fn a_chat_request_is_answered_by_a_worker_of_the_fleet() {
    let fleet = fast_fleet(2).await;
    let router = router_over(&fleet, "round-robin").await;
    let answer = router
        .client
        .post("/v1/chat/completions", &chat("hello", false))
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let body = answer.json().unwrap();
    assert_eq!(body["object"], "chat.completion");
    assert!(body["choices"][0]["message"]["content"].is_string());
    assert!(["w0", "w1"].contains(&answer.header("x-conductor-worker")));
}

#[tokio::test]
async fn a_streamed_answer_is_events_up_to_done() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "cache-aware").await;
    let mut stream = router
        .client
        .open("/v1/chat/completions", &chat("hello", true))
        .await
        .unwrap();
    assert_eq!(stream.status, StatusCode::OK);
    assert!(stream.header("content-type").starts_with("text/event-stream"));
    let mut text = String::new();
    while let Some(chunk) = stream.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let events: Vec<_> = text.split("\n\n").filter(|event| !event.is_empty()).collect();
    assert_eq!(events.last(), Some(&"data: [DONE]"));
    let first: Value = serde_json::from_str(events[0].strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(first["object"], "chat.completion.chunk");
}

#[tokio::test]
async fn every_endpoint_reaches_a_worker() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "load-weighted").await;
    let cases = [
        (
            "/v1/completions",
            json!({ "model": "mock", "prompt": "hi", "max_tokens": 2 }),
        ),
        (
            "/v1/completions",
            json!({ "model": "mock", "prompt": [1, 2, 3], "max_tokens": 2 }),
        ),
        ("/v1/embeddings", json!({ "model": "mock", "input": "hi" })),
        ("/v1/responses", json!({ "model": "mock", "input": "hi" })),
        ("/tokenize", json!({ "model": "mock", "prompt": "hi there" })),
    ];
    for (path, body) in cases {
        let answer = router.client.post(path, &body).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        answer.json().unwrap();
    }
}

#[tokio::test]
async fn models_are_merged_over_the_workers() {
    let fleet = harness::Fleet::start(3, |number, config| {
        crate::fast(number, config);
        config.model = if number == 2 {
            "other".into()
        } else {
            "mock".into()
        };
    });
    let fleet = fleet.await.unwrap();
    let router = router_over(&fleet, "round-robin").await;
    let models = router.client.get("/v1/models").await.unwrap().json().unwrap();
    let mut ids: Vec<_> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, ["mock", "other"]);
}

#[tokio::test]
async fn mistakes_of_the_client_are_explained_in_the_openai_shape() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let send = |method, path: &'static str, body: &'static str| {
        let client = router.client.clone();
        async move {
            client
                .stream(method, path, &[], Bytes::from(body))
                .await
                .unwrap()
                .whole()
                .await
                .unwrap()
        }
    };
    for (method, path, body, status) in [
        (
            Method::POST,
            "/v1/chat/completions",
            "{ not json",
            StatusCode::BAD_REQUEST,
        ),
        (
            Method::GET,
            "/v1/chat/completions",
            "",
            StatusCode::METHOD_NOT_ALLOWED,
        ),
        (Method::GET, "/v1/unheard-of", "", StatusCode::NOT_FOUND),
    ] {
        let answer = send(method, path, body).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        let error = answer.json().unwrap();
        assert!(error["error"]["message"].is_string(), "{error}");
        assert!(error["error"]["type"].is_string(), "{error}");
    }
}

#[tokio::test]
async fn health_readiness_and_metrics_answer_on_both_listeners() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    crate::filled(&router).await;
    for client in [&router.client, &router.admin] {
        assert_eq!(client.get("/health").await.unwrap().status, StatusCode::OK);
        assert_eq!(client.get("/readyz").await.unwrap().status, StatusCode::OK);
        let metrics = client.get("/metrics").await.unwrap().text();
        assert!(metrics.contains("conductor_config_generation"), "{metrics}");
    }
}

#[tokio::test]
async fn a_rejection_names_the_policy_as_answers_do_unless_decision_headers_are_off() {
    let fleet = fast_fleet(1).await;
    let rejecting = "[policies.closed.pipeline]\nfilters = [{ label = \"zone\", is = \"none\", strict = true }]\n\
                     scorers = [{ feature = \"load.requests\", weight = -1 }]\n";
    for (more, is_named) in [("", true), ("decision-headers = false\n", false)] {
        let router = router_with(&format!("{more}{rejecting}"), &fleet, "closed").await;
        for stream in [false, true] {
            let answer = router
                .client
                .post("/v1/chat/completions", &chat("hi", stream))
                .await;
            let answer = answer.unwrap();
            assert_eq!(
                answer.status,
                StatusCode::SERVICE_UNAVAILABLE,
                "{}",
                answer.text()
            );
            assert_eq!(answer.json().unwrap()["error"]["code"], "rejected_by_policy");
            let policy = answer.header("x-conductor-policy");
            assert_eq!(policy.starts_with("closed@"), is_named, "`{policy}`");
        }
    }
}
