//! Tests of every endpoint of the table, the router's own pages, configured paths, and paths that are never forwarded.

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use inference_api::{ENGINE_ADMINISTRATION, Endpoint, EndpointClass, ErrorShape, ModelField};
use proxy::{ClientLimits, ClientSpec, KeyHash};
use serde_json::Value;

use crate::client::{Answer, get, post, send};
use crate::policy::Scripted;
use crate::router::router;
use crate::worker::{Worker, whole};

const FORM: &str = "multipart/form-data; boundary=\"x y\"";

/// Creates a multipart form with a binary file.
fn form(path: &str, model: &str) -> Request<Bytes> {
    let disposition = "Content-Disposition: form-data; name=";
    let body = [
        b"--x y\r\n",
        disposition.as_bytes(),
        b"\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n\0\xff\r\n--x\r\n\r\n--x y\r\n",
        disposition.as_bytes(),
        b"\"model\"\r\n\r\n",
        model.as_bytes(),
        b"\r\n--x y--\r\n",
    ]
    .concat();
    let mut request = post(path, body);
    request
        .headers_mut()
        .insert("content-type", FORM.parse().unwrap());
    request
}

/// Creates the handshake of a WebSocket.
fn websocket(target: &str) -> Request<Bytes> {
    let mut request = get(target);
    for (name, value) in [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("content-type", "a/b"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

fn request_for(endpoint: Endpoint, model: &str) -> Request<Bytes> {
    match endpoint.spec().model {
        ModelField::Form => form(endpoint.path(), model),
        ModelField::Json | ModelField::Any => post(endpoint.path(), format!(r#"{{"model":"{model}"}}"#)),
        ModelField::Query => websocket(&format!("{}?model={model}", endpoint.path())),
    }
}

async fn code(answer: Answer) -> String {
    let error: Value = serde_json::from_str(&answer.text().await).unwrap();
    error["error"]["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_endpoint_of_the_table_is_served_by_the_worker_of_its_model() {
    let (one, two) = (Worker::named("one").await, Worker::named("two").await);
    let router = router()
        .serving("a", &one.url(), &["m-1"])
        .serving("b", &two.url(), &["m-2"])
        .start()
        .await;
    for endpoint in Endpoint::ALL.iter().copied() {
        let request = request_for(endpoint, "m-2");
        let (body, content_type) = (request.body().clone(), request.headers()["content-type"].clone());
        let answer = send(router.address, request).await;
        assert_eq!(answer.status, StatusCode::OK, "{endpoint:?}");
        assert_eq!(answer.text().await, "two", "{endpoint:?}");
        let received = two.received().pop().unwrap();
        assert_eq!(received.uri.path(), endpoint.path());
        assert_eq!(received.body, body, "{endpoint:?}: byte for byte");
        assert_eq!(received.headers["content-type"], content_type);
        let unknown = send(router.address, request_for(endpoint, "m-3")).await;
        assert_eq!(unknown.status, StatusCode::NOT_FOUND, "{endpoint:?}");
        let message = unknown.text().await;
        // Anthropic's shape has no code.
        let kind = match endpoint.spec().errors {
            ErrorShape::Anthropic => "not_found_error",
            ErrorShape::OpenAi | ErrorShape::Responses => "model_not_found",
        };
        assert!(message.contains(kind), "{endpoint:?}: {message}");
    }
    assert!(one.received().is_empty());
    for (class, label) in EndpointClass::ALL {
        let endpoints = Endpoint::ALL
            .iter()
            .filter(|endpoint| endpoint.spec().class == class);
        let expected = 2.0 * endpoints.count() as f64;
        let metric = format!(r#"conductor_endpoint_requests_total{{endpoint="{label}"}}"#);
        assert_eq!(router.metric(&metric), expected, "{label}");
    }
}

#[tokio::test]
async fn every_endpoint_takes_its_own_method_only() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    for endpoint in Endpoint::ALL {
        let path = endpoint.path();
        let (other, allowed) = match endpoint.spec().upgrades {
            true => (post(path, "{}"), "GET"),
            false => (get(path), "POST"),
        };
        let answer = send(router.address, other).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{endpoint:?}");
        assert_eq!(answer.header("allow"), Some(allowed), "{endpoint:?}");
    }
}

#[tokio::test]
async fn a_client_has_its_models_on_every_endpoint_and_no_others() {
    let worker = Worker::named("a").await;
    let client = ClientSpec {
        name: "c".into(),
        keys: vec![KeyHash::of(b"sk-c")],
        models: vec!["mine".to_owned()],
        tenant: "c".into(),
        priority: 0,
        weight: 1.0,
        may_set: proxy::EngineFields::default(),
        limits: ClientLimits::default(),
    };
    let router = router()
        .serving("a", &worker.url(), &["theirs"])
        .with(|with| with.clients = vec![client])
        .start()
        .await;
    for endpoint in Endpoint::ALL.iter().copied() {
        // A request without a model would get the only model, which the client may not use.
        for model in ["theirs", ""] {
            let mut request = request_for(endpoint, model);
            let unknown = send(router.address, request.clone()).await;
            assert_eq!(unknown.status, StatusCode::UNAUTHORIZED, "{endpoint:?}");
            let key = "Bearer sk-c".parse().unwrap();
            request.headers_mut().insert("authorization", key);
            let refused = send(router.address, request).await;
            assert_eq!(refused.status, StatusCode::NOT_FOUND, "{endpoint:?} {model}");
        }
    }
    assert!(worker.received().is_empty());
}

#[tokio::test]
async fn a_form_that_can_be_read_in_two_ways_is_refused() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    let path = "/v1/audio/transcriptions";
    let mut untyped = form(path, "m");
    untyped.headers_mut().remove("content-type");
    let mut typed_twice = form(path, "m");
    typed_twice
        .headers_mut()
        .append("content-type", "multipart/form-data; boundary=z".parse().unwrap());
    let mut cut = form(path, "m");
    let end = cut.body().len() - 6;
    *cut.body_mut() = cut.body().slice(..end);
    for request in [untyped, typed_twice, cut, post(path, r#"{"model":"m"}"#)] {
        let answer = send(router.address, request).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert_eq!(code(answer).await, "invalid_form");
    }
    assert!(worker.received().is_empty());
}

#[tokio::test]
async fn an_answer_that_is_no_text_comes_back_untouched() {
    let sound: Bytes = (0..=255_u8).cycle().take(100_000).collect::<Vec<u8>>().into();
    let audio = sound.clone();
    let worker = Worker::start(move |_| {
        let audio = audio.clone();
        async move { whole(200, "audio/mpeg", audio) }
    })
    .await;
    let router = router()
        .worker("a", &worker.url())
        // Comments belong in event streams only, whatever a body names itself.
        .with(|with| with.keep_alive = Some(std::time::Duration::from_millis(1)))
        .start()
        .await;
    let request = post("/v1/audio/speech", r#"{"model":"m","input":"hi","stream":true}"#);
    let mut answer = send(router.address, request).await;
    assert_eq!(answer.header("content-type"), Some("audio/mpeg"));
    let mut received = Vec::new();
    while let Some(piece) = answer.piece().await {
        received.extend_from_slice(&piece.unwrap());
    }
    assert_eq!(received, sound);
}

#[tokio::test]
async fn a_request_without_a_model_means_the_only_one_there_is() {
    let (one, two) = (Worker::named("one").await, Worker::named("two").await);
    let request = || post("/generate", r#"{"input_ids":[1,2]}"#);
    let single = router()
        .serving("a", &one.url(), &["m", "adapter"])
        .with(|with| {
            with.models = vec!["m*".to_owned()];
        })
        .start()
        .await;
    // The route sends all requests to one of the two.
    assert_eq!(send(single.address, request()).await.text().await, "one");
    let tokenizer = send(single.address, post("/detokenize", r#"{"tokens":[1]}"#)).await;
    assert_eq!(tokenizer.text().await, "one");
    let several = router()
        .serving("a", &one.url(), &["m-1"])
        .serving("b", &two.url(), &["m-2"])
        .start()
        .await;
    let answer = send(several.address, request()).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(code(answer).await, "model_missing");
}

#[tokio::test]
async fn prompts_of_token_ids_are_known_to_policies() {
    let worker = Worker::named("a").await;
    let policy = Scripted::first(
        &["request.prompt-tokens", "request.max-tokens"],
        &["prefix.device-tokens"],
    );
    let router = router()
        .worker("a", &worker.url())
        .policy(policy.clone())
        .start()
        .await;
    for (path, body) in [
        (
            "/inference/v1/generate",
            r#"{"token_ids":[1,2,3],"sampling_params":{"max_tokens":7}}"#,
        ),
        (
            "/generate",
            r#"{"input_ids":[1,2,3],"sampling_params":{"max_new_tokens":7}}"#,
        ),
    ] {
        assert_eq!(
            send(router.address, post(path, body)).await.status,
            StatusCode::OK
        );
    }
    for shown in policy.shown() {
        assert_eq!(shown[..2], [3.0, 7.0]);
    }
    assert_eq!(policy.shown().len(), 2);
}

#[tokio::test]
async fn the_administration_of_engines_is_never_forwarded() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    for path in ENGINE_ADMINISTRATION {
        for request in [get(path), post(path, "{}"), post(&format!("{path}/"), "{}")] {
            let answer = send(router.address, request).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
            assert_eq!(code(answer).await, "engine_administration", "{path}");
        }
    }
    assert!(worker.received().is_empty());
}

#[tokio::test]
async fn the_router_has_the_pages_of_an_engine_about_itself() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    let page = async |path: &str| -> Value {
        let answer = send(router.address, get(path)).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        serde_json::from_str(&answer.text().await).unwrap()
    };
    assert_eq!(page("/version").await["version"], env!("CARGO_PKG_VERSION"));
    let load = page("/load").await;
    assert_eq!((&load["server_load"], &load["workers"]), (&0.into(), &1.into()));
    for request in [get("/ping"), post("/ping", ""), get("/health")] {
        let answer = send(router.address, request).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.text().await, "");
    }
    assert!(worker.received().is_empty());
}

#[tokio::test]
async fn every_path_of_the_description_answers() {
    let worker = Worker::named("a").await;
    let router = router()
        .serving("a", &worker.url(), &["m"])
        .with(|with| with.edge.forward = ["/v1/custom".into()].into())
        .start()
        .await;
    let text = send(router.address, get("/openapi.json")).await.text().await;
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.contains_key("/v1/custom") && paths.contains_key("/v1/models/{id}"));
    for (path, operations) in paths {
        for method in operations.as_object().unwrap().keys() {
            let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap();
            let mut request = post(&path.replace("{id}", "m"), r#"{"model":"m"}"#);
            *request.method_mut() = method;
            let answer = send(router.address, request).await;
            let (status, text) = (answer.status, answer.text().await);
            assert_ne!(status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
            assert!(!text.contains("unknown_path"), "{path}: {text}");
        }
    }
}

#[tokio::test]
async fn a_path_of_ones_own_is_forwarded_with_any_method_until_a_reload_takes_it_away() {
    let worker = Worker::named("a").await;
    let custom = |paths: &[&str]| {
        let forward = paths.iter().map(|path| (*path).into()).collect();
        router()
            .serving("a", &worker.url(), &["m", "n"])
            .with(|with| with.edge.forward = forward)
    };
    let mut router = custom(&["/v1/custom"]).start().await;
    let json = post("/v1/custom/?q=1", r#"{"model":"n"}"#);
    assert_eq!(send(router.address, json).await.text().await, "a");
    let received = worker.received().pop().unwrap();
    assert_eq!(
        (received.method, received.uri.to_string()),
        (Method::POST, "/v1/custom?q=1".to_owned())
    );
    assert_eq!(
        send(router.address, form("/v1/custom", "m")).await.text().await,
        "a"
    );
    let unnamed = send(router.address, get("/v1/custom")).await;
    assert_eq!(code(unnamed).await, "model_missing");
    assert_eq!(
        router.metric(r#"conductor_endpoint_requests_total{endpoint="forwarded"}"#),
        3.0
    );
    router.change(custom(&[]));
    let gone = send(router.address, post("/v1/custom", r#"{"model":"n"}"#)).await;
    assert_eq!(code(gone).await, "unknown_path");
}

#[tokio::test]
async fn any_method_of_a_path_of_ones_own_reaches_a_worker_that_takes_any_model() {
    let worker = Worker::named("a").await;
    let router = router()
        .worker("a", &worker.url())
        .with(|with| with.edge.forward = ["/own".into()].into())
        .start()
        .await;
    for method in [Method::GET, Method::DELETE, Method::PUT] {
        let mut request = post("/own", "no JSON");
        *request.method_mut() = method.clone();
        assert_eq!(send(router.address, request).await.text().await, "a");
        let received = worker.received().pop().unwrap();
        assert_eq!((received.method, &received.body[..]), (method, &b"no JSON"[..]));
    }
}

#[tokio::test]
async fn a_body_is_read_as_leniently_as_engines_read_it() {
    let (one, two) = (Worker::named("one").await, Worker::named("two").await);
    let router = router()
        .serving("a", &one.url(), &["m-1"])
        .serving("b", &two.url(), &["m-2"])
        .start()
        .await;
    let twice = r#"{"model":"m-1","prompt":"a","model":"m-2"}"#;
    for path in [
        "/v1/completions",
        "/v1/completions/",
        "/v1/completions/?debug=1",
        "/tokenize/",
    ] {
        assert_eq!(
            send(router.address, post(path, twice)).await.text().await,
            "two",
            "{path}"
        );
    }
    assert_eq!(two.received()[1].uri, "/v1/completions");
    assert_eq!(two.received()[2].uri, "/v1/completions?debug=1");
    for path in ["/v1/completions", "/tokenize"] {
        let marked = format!("\u{feff}{twice}");
        assert_eq!(send(router.address, post(path, marked)).await.text().await, "two");
        assert_eq!(
            two.received().pop().unwrap().body,
            twice,
            "what the engine gets is JSON"
        );
    }
    assert_eq!(send(router.address, get("/health/")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_request_by_an_unknown_response_id_is_counted_as_a_request() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    let answer = send(router.address, get("/v1/responses/resp_1")).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    for name in [
        r#"conductor_endpoint_requests_total{endpoint="response"}"#,
        r#"conductor_requests_total{pool="",outcome="invalid"}"#,
        r#"conductor_requests_answered_total{pool="",model="other",endpoint="response",code="404"}"#,
    ] {
        assert_eq!(router.metric(name), 1.0, "{name}");
    }
}
