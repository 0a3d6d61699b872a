//! Stored responses: requests about one go to the worker that generated it.

use bytes::Bytes;
use harness::{Fleet, TestRouter, eventually, route_all, worker_toml};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{fast_fleet, router_over, router_with};

/// SHA-256 of `test` and of `other`.
const HASHES: [&str; 2] = [
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa",
];

fn response_body(stream: bool) -> Value {
    json!({"model": "mock", "input": "hi", "max_output_tokens": 3, "stream": stream})
}

/// Makes a response: its id and its worker.
async fn make(router: &TestRouter, stream: bool) -> (String, String) {
    let answer = router
        .client
        .post("/v1/responses", &response_body(stream))
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let worker = answer.header("x-conductor-worker").to_owned();
    let text = answer.text();
    let body = match stream {
        false => text.as_str(),
        true => text.split("data: ").nth(1).unwrap().lines().next().unwrap(),
    };
    let body: Value = serde_json::from_str(body).unwrap();
    let response = if stream { &body["response"] } else { &body };
    (response["id"].as_str().unwrap().to_owned(), worker)
}

fn code(body: &Value) -> &str {
    body["error"]["code"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_response_is_found_where_it_was_made() {
    let fleet = fast_fleet(3).await;
    let router = router_over(&fleet, "round-robin").await;
    for stream in [false, true] {
        let (id, worker) = make(&router, stream).await;
        for _ in 0..4 {
            let path = format!("/v1/responses/{id}");
            let answer = router.client.get(&path).await.unwrap();
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
            assert_eq!(answer.header("x-conductor-worker"), worker);
            assert!(answer.text().contains(&id));
        }
        // The response was never in the background, and the engine reports that itself.
        let cancel = format!("/v1/responses/{id}/cancel");
        let cancelled = router.client.post(&cancel, &json!({})).await.unwrap();
        assert_eq!(cancelled.status, StatusCode::BAD_REQUEST);
        assert_eq!(cancelled.header("x-conductor-worker"), worker);
        // vLLM has no such method, and refuses it itself.
        let path = format!("/v1/responses/{id}");
        let deleted = router.client.stream(Method::DELETE, &path, &[], Bytes::new());
        let deleted = deleted.await.unwrap().whole().await.unwrap();
        assert_eq!(deleted.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(deleted.header("x-conductor-worker"), worker);
    }
    let found = router
        .metric(r#"conductor_response_id_lookups_total{result="found"}"#)
        .await;
    assert_eq!(found.unwrap(), Some(12.0));
    assert_eq!(router.metric("conductor_response_ids").await.unwrap(), Some(2.0));
}

#[tokio::test]
async fn the_stream_of_a_response_in_the_background_is_found_again() {
    let fleet = fast_fleet(3).await;
    let router = router_over(&fleet, "round-robin").await;
    let mut body = response_body(true);
    body["background"] = true.into();
    let made = router.client.post("/v1/responses", &body).await.unwrap();
    let first = made.text();
    let id = first
        .split("\"id\":\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    let path = format!("/v1/responses/{id}?stream=true");
    for _ in 0..3 {
        let again = router.client.get(&path).await.unwrap();
        assert_eq!(again.text(), first);
        assert_eq!(
            again.header("x-conductor-worker"),
            made.header("x-conductor-worker")
        );
    }
}

#[tokio::test]
async fn a_response_in_the_background_is_cancelled_where_it_is_made() {
    // Engines at a real pace: the answers below take minutes.
    let fleet = Fleet::start(3, |number, config| config.seed = number as u64);
    let fleet = fleet.await.unwrap();
    let router = router_over(&fleet, "round-robin").await;
    for _ in 0..3 {
        let mut body = response_body(false);
        body["background"] = true.into();
        body["ignore_eos"] = true.into();
        body["max_output_tokens"] = 10_000.into();
        let made = router.client.post("/v1/responses", &body).await.unwrap();
        let queued = made.json().unwrap();
        assert_eq!(queued["status"], "queued", "{queued}");
        let path = format!("/v1/responses/{}", queued["id"].as_str().unwrap());
        let cancel = format!("{path}/cancel");
        let cancelled = router.client.post(&cancel, &json!({})).await.unwrap();
        assert_eq!(cancelled.json().unwrap()["status"], "cancelled");
        let worker = made.header("x-conductor-worker");
        assert_eq!(cancelled.header("x-conductor-worker"), worker);
        let found = router.client.get(&path).await.unwrap();
        assert_eq!(found.json().unwrap()["status"], "cancelled");
    }
    eventually("each engine has ended one", async || {
        fleet.engines.iter().all(|engine| engine.stats().cancelled == 1)
    })
    .await;
}

#[tokio::test]
async fn a_request_that_goes_on_from_a_response_goes_to_its_worker() {
    let fleet = fast_fleet(3).await;
    let router = router_over(&fleet, "round-robin").await;
    let (id, worker) = make(&router, false).await;
    let mut body = response_body(false);
    body["previous_response_id"] = id.into();
    for _ in 0..4 {
        let answer = router.client.post("/v1/responses", &body).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(answer.header("x-conductor-worker"), worker);
    }
    // The policy places what goes on from a response that is not known; the engine does not have it either.
    body["previous_response_id"] = "resp_unknown".into();
    let answer = router.client.post("/v1/responses", &body).await.unwrap();
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert!(!answer.header("x-conductor-worker").is_empty());
}

#[tokio::test]
async fn an_unknown_response_and_one_whose_worker_left_are_distinguished() {
    let fleet = fast_fleet(2).await;
    let router = router_over(&fleet, "round-robin").await;
    let unknown = router.client.get("/v1/responses/resp_none").await.unwrap();
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert_eq!(code(&unknown.json().unwrap()), "response_not_found");
    let wrong = router
        .client
        .post("/v1/responses/resp_none", &json!({}))
        .await
        .unwrap();
    assert_eq!(wrong.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(wrong.header("allow"), "GET, DELETE");
    let (id, worker) = make(&router, false).await;
    let stays = usize::from(worker == "w0");
    let toml = format!(
        "{}{}",
        worker_toml(stays, &fleet.engines[stays]),
        route_all("round-robin")
    );
    router.save_config(&toml).unwrap();
    let path = format!("/v1/responses/{id}");
    eventually("the worker has left", async || {
        let answer = router.client.get(&path).await.unwrap();
        code(&answer.json().unwrap()) == "response_lost"
    })
    .await;
    let mut body = response_body(false);
    body["previous_response_id"] = id.into();
    let answer = router.client.post("/v1/responses", &body).await.unwrap();
    assert_eq!(code(&answer.json().unwrap()), "response_lost");
}

#[tokio::test]
async fn a_worker_that_cannot_be_reached_keeps_its_responses_to_itself() {
    let fleet = fast_fleet(2).await;
    let router = router_over(&fleet, "round-robin").await;
    let (id, worker) = make(&router, false).await;
    let at = usize::from(worker == "w1");
    fleet.engines[at].faults().refuse_connections().await.unwrap();
    let mut body = response_body(false);
    body["previous_response_id"] = id.clone().into();
    let path = format!("/v1/responses/{id}");
    // First it is unreachable, then known to be out of service; no other worker gets the request.
    eventually("the worker is out", async || {
        let answered = router.client.get(&path).await.unwrap();
        let went_on = router.client.post("/v1/responses", &body).await.unwrap();
        for answer in [&answered, &went_on] {
            assert_eq!(
                answer.status,
                StatusCode::SERVICE_UNAVAILABLE,
                "{}",
                answer.text()
            );
        }
        code(&answered.json().unwrap()) == "response_worker_out"
            && code(&went_on.json().unwrap()) == "response_worker_out"
    })
    .await;
}

#[tokio::test]
async fn a_clients_responses_are_its_own() {
    let fleet = fast_fleet(2).await;
    let clients = format!(
        "[clients.one]\nkey-sha256 = [\"{}\"]\nconcurrent = 1\n[clients.two]\nkey-sha256 = [\"{}\"]\n",
        HASHES[0], HASHES[1]
    );
    let router = router_with(&clients, &fleet, "round-robin").await;
    let send = async |method: Method, path: &str, key: &str, body: String| {
        let headers = [("x-api-key", key)];
        let sent = router.client.stream(method, path, &headers, Bytes::from(body));
        sent.await.unwrap().whole().await.unwrap()
    };
    let made = send(
        Method::POST,
        "/v1/responses",
        "test",
        response_body(false).to_string(),
    )
    .await;
    let made = made.json().unwrap();
    let path = format!("/v1/responses/{}", made["id"].as_str().unwrap());
    // Each is over with its answer: the client may have one at a time.
    for _ in 0..3 {
        let own = send(Method::GET, &path, "test", String::new()).await;
        assert_eq!(own.status, StatusCode::OK, "{}", own.text());
    }
    let others = send(Method::GET, &path, "other", String::new()).await;
    assert_eq!(others.status, StatusCode::NOT_FOUND);
    assert_eq!(code(&others.json().unwrap()), "response_not_found");
    let without_key = router.client.get(&path).await.unwrap();
    assert_eq!(without_key.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_request_that_goes_on_in_another_pool_is_placed_by_its_policy() {
    let fleet = fast_fleet(2).await;
    let of = |number: usize, pool: &str| {
        worker_toml(number, &fleet.engines[number]).replace("pools.chat", &format!("pools.{pool}"))
    };
    let workers = format!("{}{}", of(0, "chat"), of(1, "other"));
    let other = "[[routes]]\nmatch = { header = { x-pool = \"other\" } }\npool = \"other\"\npolicy = \"round-robin\"\n";
    let toml = format!("{workers}{other}{}", route_all("round-robin"));
    let router = TestRouter::start(&toml).await.unwrap();
    let (id, worker) = make(&router, false).await;
    assert_eq!(worker, "w0");
    let mut body = response_body(false);
    body["previous_response_id"] = id.clone().into();
    let sent = router.client.stream(
        Method::POST,
        "/v1/responses",
        &[("x-pool", "other"), ("content-type", "application/json")],
        body.to_string().into(),
    );
    let answer = sent.await.unwrap().whole().await.unwrap();
    // The other engine does not have it, and refuses it itself.
    assert_eq!(answer.header("x-conductor-worker"), "w1");
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text());
    let found = router.client.get(&format!("/v1/responses/{id}")).await.unwrap();
    assert_eq!(found.header("x-conductor-worker"), "w0");
}
