//! Anthropic's Messages API: answers, streams, tokens, client limits and errors in its own shape.

use bytes::Bytes;
use harness::{TestRouter, eventually, route_all};
use http::{Method, StatusCode};
use mock_engine::{RequestFault, Times};
use serde_json::{Value, json};

use crate::{fast_fleet, long_prompt, router_over, router_with};

/// SHA-256 of `test`.
const HASH_OF_TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
/// Header of Anthropic's clients.
const KEY: [(&str, &str); 1] = [("x-api-key", "test")];

fn message(text: &str, stream: bool) -> Value {
    json!({
        "model": "mock", "stream": stream, "max_tokens": 4, "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}],
    })
}

/// Names and data of a stream's events.
fn events(text: &str) -> Vec<(String, Value)> {
    let events = text.split("\n\n").filter(|event| !event.trim().is_empty());
    let parts = events.filter_map(|event| event.trim_start().split_once("\ndata: "));
    parts
        .map(|(name, data)| {
            let name = name.strip_prefix("event: ").unwrap();
            (name.to_owned(), serde_json::from_str(data).unwrap())
        })
        .collect()
}

#[tokio::test]
async fn a_message_is_answered_and_names_its_request() {
    let fleet = fast_fleet(2).await;
    let router = router_over(&fleet, "round-robin").await;
    let body = Bytes::from(message("hello", false).to_string());
    let headers = [("anthropic-version", "2023-06-01"), ("anthropic-beta", "b")];
    let sent = router
        .client
        .stream(Method::POST, "/v1/messages", &headers, body.clone());
    let answer = sent.await.unwrap().whole().await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let message = answer.json().unwrap();
    assert_eq!(
        (&message["type"], &message["role"]),
        (&json!("message"), &json!("assistant"))
    );
    assert_eq!(answer.header("request-id"), answer.header("x-request-id"));
    assert!(!answer.header("request-id").is_empty());
    let engines = fleet.engines.iter();
    let recorded: Vec<_> = engines
        .flat_map(|engine| engine.requests("/v1/messages"))
        .collect();
    assert_eq!(recorded.len(), 1);
    assert_eq!(recorded[0].body, body);
    assert_eq!(recorded[0].headers["anthropic-version"], "2023-06-01");
    assert_eq!(recorded[0].headers["anthropic-beta"], "b");
}

#[tokio::test]
async fn a_stream_of_a_message_is_its_events() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "cache-aware").await;
    let sent = router.client.post("/v1/messages", &message("hello", true)).await;
    let text = sent.unwrap().text();
    let names: Vec<String> = events(&text).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.first().map(String::as_str), Some("message_start"));
    assert_eq!(names.last().map(String::as_str), Some("message_stop"));
    assert_eq!(
        names.iter().filter(|name| *name == "content_block_delta").count(),
        4
    );
    eventually("the request is complete", async || {
        let complete = r#"conductor_requests_total{pool="chat",outcome="complete"}"#;
        router.metric(complete).await.unwrap() == Some(1.0)
    })
    .await;
}

/// The engine's cache has the prompt as a chat, and the router finds it there.
#[tokio::test]
async fn a_message_has_the_tokens_of_its_chat() {
    let fleet = fast_fleet(2).await;
    let router = router_over(&fleet, "cache-aware").await;
    let prompt = long_prompt(1);
    let chat = json!({
        "model": "mock", "max_tokens": 2,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt}],
    });
    let first = router.client.post("/v1/chat/completions", &chat).await.unwrap();
    let worker = first.header("x-conductor-worker").to_owned();
    eventually("the message's prompt is found at that worker", async || {
        let answer = router
            .client
            .post("/v1/messages", &message(&prompt, false))
            .await
            .unwrap();
        let matched: u32 = answer.header("x-conductor-matched-tokens").parse().unwrap_or(0);
        let cached = answer.json().unwrap()["usage"]["cache_read_input_tokens"].as_u64();
        answer.header("x-conductor-worker") == worker && matched > 100 && cached > Some(100)
    })
    .await;
}

#[tokio::test]
async fn tokens_of_a_message_are_counted_by_a_worker() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let path = "/v1/messages/count_tokens";
    let counted = router
        .client
        .post(path, &message("hello there", false))
        .await
        .unwrap();
    let counted = counted.json().unwrap()["input_tokens"].as_u64().unwrap();
    let answer = router
        .client
        .post("/v1/messages", &message("hello there", false))
        .await;
    let usage = answer.unwrap().json().unwrap()["usage"].clone();
    let parts = [
        "input_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
    ];
    let prompt: u64 = parts.iter().map(|part| usage[part].as_u64().unwrap()).sum();
    assert_eq!(counted, prompt);
}

#[tokio::test]
async fn errors_have_anthropics_shape_on_its_paths() {
    let fleet = fast_fleet(1).await;
    let clients = format!("[clients.one]\nkey-sha256 = [\"{HASH_OF_TEST}\"]\nrequests-per-minute = 3\n");
    let route = format!("{clients}{}", route_all("round-robin"));
    let router = TestRouter::start(&format!("{}{route}", fleet.workers_toml()))
        .await
        .unwrap();
    let send = async |path: &str, key: &str, body: &Value| {
        let headers = [("x-api-key", key)];
        let body = Bytes::from(body.to_string());
        let sent = router.client.stream(Method::POST, path, &headers, body);
        let answer = sent.await.unwrap().whole().await.unwrap();
        let error = answer.json().unwrap();
        // The router's own; a worker's error goes on as it is.
        if let Some(id) = error["request_id"].as_str() {
            assert_eq!(id, answer.header("request-id"), "{error}");
        }
        (
            answer.status.as_u16(),
            error["error"]["type"].as_str().unwrap_or("").to_owned(),
        )
    };
    let hello = message("hello", false);
    let error = |status, kind: &str| (status, kind.to_owned());
    assert_eq!(
        send("/v1/messages", "wrong", &hello).await,
        error(401, "authentication_error")
    );
    assert_eq!(
        send("/v1/messages/count_tokens", "wrong", &hello).await,
        error(401, "authentication_error")
    );
    let other = json!({"model": "none", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]});
    assert_eq!(send("/v1/messages", "test", &other).await.0, 404);
    assert_eq!(
        send("/v1/messages", "test", &json!([])).await,
        error(400, "invalid_request_error")
    );
    assert_eq!(send("/v1/messages", "test", &hello).await, error(200, ""));
    let mut limited = error(200, "");
    // The limit refills with time.
    for _ in 0..100 {
        if limited.0 == 200 {
            limited = send("/v1/messages", "test", &hello).await;
        }
    }
    assert_eq!(limited, error(429, "rate_limit_error"));
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error_event() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let cut = RequestFault::Cut { after_tokens: 2 };
    fleet.engines[0].faults().on_requests(cut, Times::Next(1));
    let sent = router.client.post("/v1/messages", &message("hello", true)).await;
    let text = sent.unwrap().text();
    let (name, data) = events(&text).pop().unwrap();
    assert_eq!(name, "error", "{text}");
    assert_eq!(
        (&data["type"], &data["error"]["type"]),
        (&json!("error"), &json!("api_error"))
    );
}

/// A client's usage includes all of its prompt, also cached tokens.
#[tokio::test]
async fn a_clients_tokens_are_those_of_its_messages() {
    let fleet = fast_fleet(1).await;
    let clients = format!("[clients.one]\nkey-sha256 = [\"{HASH_OF_TEST}\"]\n");
    let router = router_with("", &fleet, "round-robin").await;
    let toml = format!("{}{clients}{}", fleet.workers_toml(), route_all("round-robin"));
    router.save_config(&toml).unwrap();
    let body = Bytes::from(message(&long_prompt(2), true).to_string());
    let counted = async || {
        let series = r#"conductor_client_tokens_total{client="one",kind="prompt"}"#;
        router.metric(series).await.unwrap().unwrap_or(0.0)
    };
    eventually("the client is known", async || {
        let sent = router
            .client
            .stream(Method::POST, "/v1/messages", &KEY, body.clone());
        drop(sent.await.unwrap().whole().await);
        counted().await > 0.0
    })
    .await;
    let once = counted().await;
    let sent = router
        .client
        .stream(Method::POST, "/v1/messages", &KEY, body.clone());
    drop(sent.await.unwrap().whole().await.unwrap());
    eventually("the second counts as much", async || {
        let now = counted().await;
        now >= 2.0 * once - 0.5
    })
    .await;
}
