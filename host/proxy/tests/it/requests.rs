//! Tests of forwarded requests, of their responses, and of the router's own refusals.

use http::StatusCode;

use crate::client::{chat, get, post, send};
use crate::policy::{Scripted, fault};
use crate::router::router;
use crate::worker::{Worker, json, whole};

#[tokio::test]
async fn a_request_reaches_the_worker_byte_for_byte() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    let body = "{ \"model\" : \"m\",\n \"messages\":[], \"unheard-of\": {\"x\":[1.0e2,\"\\u00e4\"]}}\n";
    let mut request = post("/v1/chat/completions?debug=1", body);
    for (name, value) in [
        ("authorization", "Bearer key"),
        ("x-tenant", "t"),
        ("connection", "close, x-mine"),
        ("x-mine", "hop"),
        ("te", "trailers"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    assert_eq!(send(router.address, request).await.status, StatusCode::OK);
    let received = &worker.received()[0];
    assert_eq!(received.body, body);
    assert_eq!(received.method, "POST");
    assert_eq!(received.uri, "/v1/chat/completions?debug=1");
    let header = |name: &str| {
        received
            .headers
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(header("authorization").as_deref(), Some("Bearer key"));
    assert_eq!(header("x-tenant").as_deref(), Some("t"));
    assert_eq!(header("content-type").as_deref(), Some("application/json"));
    assert_eq!(header("content-length"), Some(body.len().to_string()));
    assert_eq!(header("host"), Some(worker.address.to_string()));
    assert_eq!(
        [header("x-mine"), header("te"), header("connection")],
        [None, None, None]
    );
}

#[tokio::test]
async fn status_headers_and_body_of_the_worker_come_back() {
    let worker = Worker::start(|_| async {
        let mut response = whole(429, "application/problem+json", r#"{"odd":1}"#);
        response.headers_mut().insert("x-engine", "e".parse().unwrap());
        response
            .headers_mut()
            .insert("keep-alive", "timeout=5".parse().unwrap());
        response
    })
    .await;
    let router = router().worker("a", &worker.url()).start().await;
    let answer = send(router.address, chat()).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("x-engine"), Some("e"));
    assert_eq!(answer.header("keep-alive"), None);
    assert_eq!(answer.header("x-conductor-worker"), Some("a"));
    assert_eq!(answer.text().await, r#"{"odd":1}"#);
}

#[tokio::test]
async fn a_request_id_is_made_where_there_is_none_and_kept_where_there_is_one() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    let made = send(router.address, chat()).await;
    let made = made.header("x-request-id").unwrap().to_owned();
    let mut request = chat();
    request
        .headers_mut()
        .insert("x-request-id", "mine".parse().unwrap());
    let kept = send(router.address, request).await;
    assert_eq!(kept.header("x-request-id"), Some("mine"));
    let seen: Vec<_> = worker
        .received()
        .iter()
        .map(|r| r.headers["x-request-id"].clone())
        .collect();
    assert_eq!(seen, [&made, "mine"]);
}

#[tokio::test]
async fn the_answer_has_the_clients_request_id_whatever_the_worker_calls_it() {
    let worker = Worker::start(|_| async {
        let mut response = json(200, "a");
        response
            .headers_mut()
            .insert("x-request-id", "theirs".parse().unwrap());
        response
    })
    .await;
    let router = router().worker("a", &worker.url()).start().await;
    let mut request = chat();
    request
        .headers_mut()
        .insert("x-request-id", "mine".parse().unwrap());
    let answer = send(router.address, request).await;
    let ids: Vec<_> = answer.headers.get_all("x-request-id").iter().collect();
    assert_eq!(ids, ["mine"]);
}

#[tokio::test]
async fn every_inference_path_is_proxied() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    let paths = [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
    ];
    for path in paths {
        assert_eq!(
            send(router.address, post(path, "{}")).await.text().await,
            "a",
            "{path}"
        );
    }
    assert_eq!(worker.paths(), paths);
    assert_eq!(router.outcomes("complete"), 4.0);
    assert_eq!(worker.connections(), 1, "the connection is used again");
}

#[tokio::test]
async fn unanswerable_requests_are_refused_in_the_openai_error_format() {
    let worker = Worker::named("a").await;
    let router = router()
        .serving("a", &worker.url(), &["m-1", "m-3"])
        .with(|builder| {
            builder.models = vec!["m-*".to_owned()];
            builder.limits.body_bytes = 100;
        })
        .start()
        .await;
    let path = "/v1/chat/completions";
    for (request, status, code, message) in [
        (
            post(path, "x".repeat(101)),
            413,
            "body_too_large",
            "the request body is longer than 100 bytes",
        ),
        (
            post(path, "{\n\"model\": m}"),
            400,
            "invalid_json",
            "the request body is not valid JSON: expected value at line 2 column 10",
        ),
        (
            post(path, "[]"),
            400,
            "invalid_json",
            "the request body is not a JSON object",
        ),
        (
            post(path, r#"{"model":"x"}"#),
            404,
            "model_not_found",
            "the model `x` does not exist",
        ),
        (
            post(path, r#"{"model":"m-2"}"#),
            404,
            "model_not_found",
            "the model `m-2` does not exist",
        ),
        (
            post(path, r#"{"prompt":"x"}"#),
            400,
            "model_missing",
            "the request names no model, and the router cannot determine it: name it as `model`",
        ),
        (
            get("/v1/nothing"),
            404,
            "unknown_path",
            "unknown path `/v1/nothing`",
        ),
        (
            get(path),
            405,
            "method_not_allowed",
            "`/v1/chat/completions` takes POST only",
        ),
        (
            post("/health", ""),
            405,
            "method_not_allowed",
            "`/health` takes GET only",
        ),
    ] {
        let answer = send(router.address, request).await;
        assert_eq!(answer.status, status, "{message}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let error: serde_json::Value = serde_json::from_str(&answer.text().await).unwrap();
        assert_eq!(error["error"]["code"], code);
        assert_eq!(error["error"]["message"], message);
        let of_model = code.starts_with("model_");
        assert_eq!(error["error"]["param"].as_str(), of_model.then_some("model"));
    }
    assert!(worker.received().is_empty());
    assert_eq!(
        router.metric(r#"conductor_requests_total{pool="",outcome="invalid"}"#),
        5.0
    );
    assert_eq!(router.outcomes("invalid"), 1.0);
}

#[tokio::test]
async fn a_route_can_require_a_header() {
    let worker = Worker::named("a").await;
    let router = router()
        .worker("a", &worker.url())
        .with(|builder| builder.headers = vec![("x-tier".to_owned(), "gold".to_owned())])
        .start()
        .await;
    assert_eq!(send(router.address, chat()).await.status, StatusCode::NOT_FOUND);
    let mut request = chat();
    request.headers_mut().insert("x-tier", "gold".parse().unwrap());
    assert_eq!(send(router.address, request).await.status, StatusCode::OK);
}

#[tokio::test]
async fn models_of_all_workers_are_one_list() {
    let first =
        Worker::start(|_| async { json(200, r#"{"object":"list","data":[{"id":"x","root":"/x"}]}"#) }).await;
    let second = Worker::start(|_| async { json(200, r#"{"data":[{"id":"x"},{"id":"y"}]}"#) }).await;
    let broken = Worker::start(|_| async { json(500, "no") }).await;
    let router = router()
        .worker("a", &first.url())
        .worker("b", &second.url())
        .worker("c", &broken.url())
        .worker("d", &Worker::unreachable())
        .start()
        .await;
    let list = r#"{"object":"list","data":[{"id":"x","root":"/x"},{"id":"y"}]}"#;
    assert_eq!(send(router.address, get("/v1/models")).await.text().await, list);
    assert_eq!(send(router.address, get("/v1/models")).await.text().await, list);
    assert_eq!(first.received().len(), 1, "the list is remembered for a while");
}

#[tokio::test]
async fn a_model_of_the_list_can_be_had_by_its_id() {
    let models = r#"{"data":[{"id":"x"},{"id":"org/y","root":"/y"}]}"#;
    let worker = Worker::start(move |_| async move { json(200, models) }).await;
    let router = router().worker("a", &worker.url()).start().await;
    let check = async |path: &str, status: u16, expected: &str| {
        let answer = send(router.address, get(path)).await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let text = answer.text().await;
        assert!(text.contains(expected), "{path}: {text}");
    };
    check("/v1/models/x", 200, r#"{"id":"x"}"#).await;
    check("/v1/models/org/y", 200, r#"{"id":"org/y","root":"/y"}"#).await;
    check("/v1/models/org%2Fy", 200, r#"{"id":"org/y","root":"/y"}"#).await;
    check("/v1/models/z", 404, r#""code":"model_not_found""#).await;
    check("/v1/models/%ff", 404, r#""code":"unknown_path""#).await;
    check("/v1/models/", 200, r#""id":"x""#).await;
}

#[tokio::test]
async fn a_model_list_sent_to_credentials_is_sent_to_no_other_client() {
    let worker = Worker::start(|request| async move {
        let model = request.headers.get("authorization").map_or("open", |_| "private");
        json(200, format!(r#"{{"data":[{{"id":"{model}"}}]}}"#))
    })
    .await;
    let router = router().worker("a", &worker.url()).start().await;
    for (credentials, model) in [
        (true, "private"),
        (false, "open"),
        (true, "private"),
        (false, "open"),
    ] {
        let mut request = get("/v1/models");
        if credentials {
            let value = "Bearer k".parse().unwrap();
            request.headers_mut().insert("authorization", value);
        }
        let list = send(router.address, request).await.text().await;
        assert_eq!(
            list,
            format!(r#"{{"object":"list","data":[{{"id":"{model}"}}]}}"#)
        );
    }
    assert_eq!(worker.received().len(), 2, "either is remembered");
}

#[tokio::test]
async fn metrics_are_in_the_format_that_the_scraper_accepts() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    send(router.address, chat()).await.text().await;
    for (accept, kind, counter, end) in [
        ("*/*", "text/plain; version=0.0.4", "worker_attempts_total", false),
        (
            "application/openmetrics-text",
            "application/openmetrics-text; version=1.0.0",
            "worker_attempts",
            true,
        ),
    ] {
        let mut scrape = get("/metrics");
        scrape.headers_mut().insert("accept", accept.parse().unwrap());
        let answer = send(router.address, scrape).await;
        assert!(
            answer.header("content-type").unwrap().starts_with(kind),
            "{accept}"
        );
        let text = answer.text().await;
        let described = format!("# TYPE conductor_{counter} counter");
        for line in [
            "conductor_worker_attempts_total{worker=\"a\"} 1",
            "conductor_worker_requests_in_flight{worker=\"a\"} 0",
            "conductor_policy_decisions_total{policy=\"scripted\",verdict=\"route\"} 1",
            described.as_str(),
        ] {
            assert!(
                text.lines().any(|have| have.trim_end_matches(".0") == line),
                "{line} in\n{text}"
            );
        }
        assert_eq!(text.ends_with("# EOF\n"), end, "{accept}");
    }
}

#[tokio::test]
async fn answers_name_the_worker_and_the_policy_unless_that_is_turned_off() {
    let worker = Worker::named("a").await;
    let plain = router().worker("a", &worker.url());
    let mut router = plain.clone().start().await;
    let answer = send(router.address, chat()).await;
    assert_eq!(answer.header("x-conductor-worker"), Some("a"));
    assert_eq!(answer.header("x-conductor-policy"), Some("scripted@native"));
    router.change(plain.clone().policy(Scripted::new(|_| Err(fault()))));
    let answer = send(router.address, chat()).await;
    assert_eq!(answer.header("x-conductor-policy"), Some("least-loaded@native"));
    router.change(plain.with(|builder| builder.decision_headers = false));
    let answer = send(router.address, chat()).await;
    assert_eq!(answer.header("x-conductor-worker"), None);
    assert_eq!(answer.header("x-conductor-policy"), None);
}
