//! Tests of clients with keys: authentication, removal of keys, and limits.

use std::num::NonZeroU32;

use bytes::Bytes;
use http::{Request, StatusCode};
use proxy::{Authorization, ClientLimits, ClientSpec, EngineFields, KeyHash};

use crate::client::{Answer, chat, get, post, send};
use crate::eventually;
use crate::policy::Scripted;
use crate::router::{Router, router};
use crate::tokens::querying_worker;
use crate::worker::{Worker, answered_by_hand, json, streaming, tokenizing, whole};

pub(crate) fn client(name: &str) -> ClientSpec {
    ClientSpec {
        name: name.into(),
        keys: vec![KeyHash::of(format!("sk-{name}").as_bytes())],
        models: vec![],
        tenant: name.into(),
        priority: 0,
        weight: 1.0,
        may_set: EngineFields::default(),
        limits: ClientLimits::default(),
    }
}

pub(crate) fn limited(name: &str, requests: u32, tokens: u32, concurrent: u32) -> ClientSpec {
    ClientSpec {
        limits: ClientLimits {
            requests: NonZeroU32::new(requests),
            tokens: NonZeroU32::new(tokens),
            concurrent: NonZeroU32::new(concurrent),
        },
        ..client(name)
    }
}

pub(crate) async fn over(worker: &Worker, clients: Vec<ClientSpec>) -> Router {
    let router = router().worker("a", &worker.url());
    router.with(|with| with.clients = clients).start().await
}

pub(crate) fn with(mut request: Request<Bytes>, headers: &[(&'static str, &str)]) -> Request<Bytes> {
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

/// Adds the key of a client.
pub(crate) fn of(name: &str, request: Request<Bytes>) -> Request<Bytes> {
    with(request, &[("authorization", &format!("Bearer sk-{name}"))])
}

#[track_caller]
fn refused(answer: &Answer, status: StatusCode) {
    assert_eq!(answer.status, status);
}

#[tokio::test]
async fn without_a_known_key_there_is_no_inference() {
    let worker = Worker::named("a").await;
    let router = over(&worker, vec![client("x")]).await;
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/tokenize",
    ] {
        for headers in [
            &[][..],
            &[("authorization", "Bearer sk-y")],
            &[("x-api-key", "sk-y")],
        ] {
            let answer = send(router.address, with(post(path, "{}"), headers)).await;
            refused(&answer, StatusCode::UNAUTHORIZED);
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            let text = answer.text().await;
            assert!(text.contains(r#""code":"invalid_api_key""#), "{text}");
            assert!(!text.contains("sk-y"), "{text}");
        }
    }
    for path in ["/v1/models", "/v1/models/m"] {
        refused(&send(router.address, get(path)).await, StatusCode::UNAUTHORIZED);
    }
    assert!(worker.received().is_empty());
    refused(&send(router.address, get("/health")).await, StatusCode::OK);
    let count = |reason| {
        router.metric(&format!(
            "conductor_client_refusals_total{{client=\"\",reason=\"{reason}\"}}"
        ))
    };
    assert_eq!((count("no-key"), count("wrong-key")), (6.0, 8.0));
}

#[tokio::test]
async fn a_refused_client_that_is_still_sending_reads_why() {
    let worker = Worker::named("a").await;
    let router = over(&worker, vec![client("x")]).await;
    let long = format!(r#"{{"prompt":"{}"}}"#, "x".repeat(700_000));
    let answer = send(router.address, post("/v1/completions", long)).await;
    refused(&answer, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_clients_key_never_reaches_a_worker() {
    let worker = Worker::named("a").await;
    let builder = |authorization| {
        let router = router().worker("a", &worker.url());
        router.with(|with| (with.clients, with.authorization) = (vec![client("x")], authorization))
    };
    let mut router = builder(Authorization::Pass).start().await;
    let check = async |router: &Router, headers: &[(&'static str, &str)], expected: Option<&str>| {
        let answer = send(router.address, with(chat(), headers)).await;
        refused(&answer, StatusCode::OK);
        let seen = worker.received().pop().unwrap().headers;
        let bearer = seen
            .get("authorization")
            .map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(bearer.as_deref(), expected);
        assert!(seen.values().all(|value| !value.as_bytes().starts_with(b"sk-")));
    };
    check(&router, &[("authorization", "Bearer sk-x")], None).await;
    check(&router, &[("x-api-key", "sk-x")], None).await;
    let both = [("x-api-key", "sk-x"), ("authorization", "Bearer theirs")];
    check(&router, &both, Some("Bearer theirs")).await;
    router.change(builder(Authorization::Drop));
    check(&router, &both, None).await;
    router.change(builder(Authorization::bearer("own").unwrap()));
    check(&router, &[("authorization", "Bearer sk-x")], Some("Bearer own")).await;
}

#[tokio::test]
async fn a_client_sees_and_gets_its_own_models_only() {
    let list = r#"{"object":"list","data":[{"id":"llama-8b"},{"id":"qwen"}]}"#;
    let worker = Worker::start(move |_| async move { json(200, list) }).await;
    let llamas = ClientSpec {
        models: vec!["llama-*".to_owned()],
        ..client("x")
    };
    let router = over(&worker, vec![llamas, client("y")]).await;
    let listed = async |name: &str| {
        send(router.address, of(name, get("/v1/models")))
            .await
            .text()
            .await
    };
    assert_eq!(
        listed("x").await,
        r#"{"object":"list","data":[{"id":"llama-8b"}]}"#
    );
    assert_eq!(listed("y").await, list);
    let model = async |name: &str, model: &str| {
        let page = of(name, get(&format!("/v1/models/{model}")));
        let body = format!(r#"{{"model":"{model}"}}"#);
        let completion = of(name, post("/v1/completions", body.clone()));
        let tokenized = of(name, post("/tokenize", body));
        let mut statuses = Vec::new();
        for request in [page, completion, tokenized] {
            statuses.push(send(router.address, request).await.status.as_u16());
        }
        statuses
    };
    assert_eq!(model("x", "llama-8b").await, [200, 200, 200]);
    assert_eq!(model("y", "qwen").await, [200, 200, 200]);
    assert_eq!(model("x", "qwen").await, [404, 404, 404]);
    let count = |reason| {
        router.metric(&format!(
            "conductor_client_refusals_total{{client=\"x\",reason=\"{reason}\"}}"
        ))
    };
    assert_eq!(count("model"), 2.0, "of those that request work");
}

#[tokio::test]
async fn over_its_requests_a_client_gets_a_retry_after() {
    let worker = Worker::named("a").await;
    let router = over(&worker, vec![limited("x", 2, 0, 0), client("y")]).await;
    let send_as = async |name: &str| send(router.address, of(name, chat())).await;
    let first = send_as("x").await;
    refused(&first, StatusCode::OK);
    assert_eq!(first.header("x-ratelimit-limit-requests"), Some("2"));
    assert_eq!(first.header("x-ratelimit-remaining-requests"), Some("1"));
    assert!(first.header("x-ratelimit-reset-requests").is_some());
    assert_eq!(first.header("x-ratelimit-limit-tokens"), None);
    send_as("x").await;
    let third = send_as("x").await;
    refused(&third, StatusCode::TOO_MANY_REQUESTS);
    let after: u64 = third.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&after), "{after}");
    assert_eq!(third.header("x-ratelimit-remaining-requests"), Some("0"));
    let text = third.text().await;
    assert!(
        text.contains(r#""type":"requests","param":null,"code":"rate_limit_exceeded""#),
        "{text}"
    );
    refused(&send_as("y").await, StatusCode::OK);
    assert_eq!(
        router.metric("conductor_client_requests_total{client=\"x\"}"),
        2.0
    );
    let limited = "conductor_client_refusals_total{client=\"x\",reason=\"requests\"}";
    assert_eq!(router.metric(limited), 1.0);
    assert_eq!(
        router.metric("conductor_requests_total{pool=\"\",outcome=\"limited\"}"),
        1.0
    );
}

#[tokio::test]
async fn tokens_are_counted_as_the_worker_reports_them() {
    // Tokens of half an hour.
    let usage = r#"{"usage":{"prompt_tokens":29700,"completion_tokens":300}}"#;
    let worker = Worker::start(move |_| async move { json(200, usage) }).await;
    let router = over(&worker, vec![limited("x", 0, 1_000, 0)]).await;
    send(router.address, of("x", chat())).await.text().await;
    let second = send(router.address, of("x", chat())).await;
    refused(&second, StatusCode::TOO_MANY_REQUESTS);
    let text = second.text().await;
    assert!(text.contains(r#""type":"tokens""#), "{text}");
    let count = |kind| {
        router.metric(&format!(
            "conductor_client_tokens_total{{client=\"x\",kind=\"{kind}\"}}"
        ))
    };
    assert_eq!((count("prompt"), count("output")), (29_700.0, 300.0));
}

#[tokio::test]
async fn a_request_that_no_worker_answers_costs_no_tokens() {
    let worker = Worker::start(|_| async { whole(500, "application/json", "{}") }).await;
    let router = over(&worker, vec![limited("x", 0, 1_000, 0)]).await;
    let long = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(3_000));
    for _ in 0..3 {
        let answer = send(router.address, of("x", post("/v1/completions", long.clone()))).await;
        refused(&answer, StatusCode::INTERNAL_SERVER_ERROR);
        answer.text().await;
    }
    assert_eq!(
        router.metric("conductor_client_tokens_total{client=\"x\",kind=\"prompt\"}"),
        0.0
    );
}

#[tokio::test]
async fn a_seat_is_held_to_the_end_of_the_answer() {
    let (worker, mut answers) = streaming().await;
    let router = over(&worker, vec![limited("x", 0, 0, 1)]).await;
    let running = || router.metric("conductor_client_requests_running{client=\"x\"}");
    let first = send(router.address, of("x", chat())).await;
    let pen = answers.recv().await.unwrap();
    assert_eq!(running(), 1.0);
    let second = send(router.address, of("x", chat())).await;
    refused(&second, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(second.header("retry-after"), Some("1"));
    drop(pen);
    drop(first);
    eventually("the slot is free", || running() == 0.0).await;
}

#[tokio::test]
async fn a_reload_neither_forgets_what_was_used_nor_who_is_being_answered() {
    let (worker, mut answers) = answered_by_hand().await;
    let builder = |requests| {
        let router = router().worker("a", &worker.url());
        router.with(|with| with.clients = vec![limited("x", requests, 0, 0)])
    };
    let mut router = builder(1).start().await;
    let address = router.address;
    let others = async {
        let response = answers.recv().await.unwrap();
        router.change(builder(1));
        let second = send(address, of("x", chat())).await;
        refused(&second, StatusCode::TOO_MANY_REQUESTS);
        let running = router.metric("conductor_client_requests_running{client=\"x\"}");
        assert_eq!(running, 1.0);
        response.send(json(200, "{}")).ok().unwrap();
    };
    let (first, ()) = tokio::join!(send(address, of("x", chat())), others);
    assert_eq!(first.status, StatusCode::OK);
    router.change(crate::router::router().worker("a", &worker.url()));
    assert_eq!(
        router.metric("conductor_client_requests_total{client=\"x\"}"),
        0.0
    );
}

#[tokio::test]
async fn declared_models_are_listed_although_no_worker_lists_them() {
    let worker = Worker::start(|_| async { whole(404, "text/plain", "") }).await;
    let router = router()
        .serving("a", &worker.url(), &["org/declared"])
        .start()
        .await;
    let text = send(router.address, get("/v1/models")).await.text().await;
    assert!(text.contains(r#""id":"org/declared""#), "{text}");
    let answer = send(router.address, get("/v1/models/org/declared")).await;
    refused(&answer, StatusCode::OK);
}

#[tokio::test]
async fn workers_receive_the_pools_key_with_every_request_and_tokenize_is_counted() {
    let worker = tokenizing().await;
    let router = router()
        .worker("a", &worker.url())
        .with(|with| {
            with.clients = vec![limited("x", 1, 0, 0)];
            with.authorization = Authorization::bearer("own").unwrap();
        })
        .start()
        .await;
    let tokenize = || of("x", post("/tokenize", r#"{"model":"m","prompt":"hi"}"#));
    assert_eq!(send(router.address, tokenize()).await.status, StatusCode::OK);
    send(router.address, of("x", get("/v1/models"))).await;
    let seen = worker.received();
    let paths: Vec<_> = seen.iter().map(|request| request.uri.path()).collect();
    assert_eq!(paths, ["/tokenize", "/v1/models"]);
    assert!(
        seen.iter()
            .all(|request| request.headers["authorization"] == "Bearer own")
    );
    let again = send(router.address, tokenize()).await;
    refused(&again, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn requests_that_are_not_placed_carry_the_pools_key_too() {
    for (authorization, key) in [
        (Authorization::Pass, Some("Bearer client")),
        (Authorization::Drop, None),
        (Authorization::bearer("own").unwrap(), Some("Bearer own")),
    ] {
        let worker = Worker::start(|request| async move {
            match request.uri.path() {
                "/tokenize" => json(200, r#"{"count":2,"max_model_len":512,"tokens":[1,2]}"#),
                "/v1/models" => json(200, r#"{"object":"list","data":[{"id":"m"}]}"#),
                _ => json(200, r#"{"id":"resp_1","status":"completed"}"#),
            }
        })
        .await;
        let router = router()
            .worker("a", &worker.url())
            .policy(Scripted::first(
                &["request.prompt-tokens"],
                &["prefix.any-tokens"],
            ))
            .with(|with| with.authorization = authorization)
            .with(querying_worker)
            .start()
            .await;
        let body = r#"{"model":"m","input":"hi","prompt":"hi","messages":[]}"#;
        for request in [
            post("/v1/responses", body),
            get("/v1/responses/resp_1"),
            post("/v1/responses/resp_1/cancel", ""),
            post("/tokenize", body),
            post("/v1/responses/render", body),
            post("/v1/completions/derender", body),
            post("/v1/completions", body),
            get("/v1/models"),
        ] {
            let path = request.uri().clone();
            let answer = send(
                router.address,
                with(request, &[("authorization", "Bearer client")]),
            )
            .await;
            assert_eq!(answer.status, StatusCode::OK, "{path}");
            answer.text().await;
        }
        let seen = worker.received();
        let tokenized = seen.iter().filter(|request| request.uri.path() == "/tokenize");
        assert!(tokenized.count() >= 2, "the client's and the router's own");
        for request in seen {
            let sent = request.headers.get("authorization");
            let sent = sent.map(|value| value.to_str().unwrap());
            assert_eq!(sent, key, "{}", request.uri);
        }
    }
}

#[tokio::test]
async fn an_answer_whose_tokens_count_is_not_compressed_and_one_without_usage_is_not_free() {
    let worker = Worker::start(|_| async { json(200, "x".repeat(4_000)) }).await;
    let router = over(&worker, vec![limited("x", 0, 100_000, 0), client("y")]).await;
    for (name, encoding) in [("x", None), ("y", Some("gzip"))] {
        let request = with(of(name, chat()), &[("accept-encoding", "gzip")]);
        send(router.address, request).await.text().await;
        let seen = worker.received();
        let accepted = seen.last().unwrap().headers.get("accept-encoding");
        assert_eq!(accepted.map(|value| value.to_str().unwrap()), encoding);
    }
    eventually("it is settled", || {
        router.metric(r#"conductor_client_tokens_total{client="x",kind="output"}"#) == 1_000.0
    })
    .await;
}
