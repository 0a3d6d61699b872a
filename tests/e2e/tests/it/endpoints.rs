//! Endpoints other than chats, through the router to an engine: the engine's answer is returned, and the model selects
//! the worker.

use bytes::Bytes;
use harness::{Answer, Fleet, TestRouter};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{fast_fleet, router_over};

/// Returns a router over one engine.
async fn one() -> (Fleet, TestRouter) {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    (fleet, router)
}

async fn post(router: &TestRouter, path: &str, body: &Value) -> Value {
    let answer = router.client.post(path, body).await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
    answer.json().unwrap()
}

/// Checks that the engine was sent the body byte for byte at that path, and that its own answer to it is the router's.
async fn check(fleet: &Fleet, router: &TestRouter, path: &str, body: &Value) -> Value {
    let engine = &fleet.engines[0];
    let direct = harness::Client::new(engine.url());
    let mut direct = direct.post(path, body).await.unwrap().json().unwrap();
    let mut through = post(router, path, body).await;
    let sent = engine.requests(path).pop().unwrap();
    assert_eq!(sent.body, Bytes::from(body.to_string()), "{path}");
    for answer in [&mut direct, &mut through] {
        // Those differ between any two requests.
        for field in ["id", "request_id", "created"] {
            answer.as_object_mut().unwrap().remove(field);
        }
    }
    assert_eq!(through, direct, "{path}");
    through
}

#[tokio::test]
async fn models_that_return_no_text_are_served() {
    let (fleet, router) = one().await;
    let texts = json!({"model": "mock", "input": ["a b", "c", "a b"]});
    let embedded = check(&fleet, &router, "/v1/embeddings", &texts).await;
    let vectors = |index: usize| &embedded["data"][index]["embedding"];
    assert_eq!(vectors(0), vectors(2));
    assert_ne!(vectors(0), vectors(1));
    assert_eq!(embedded["usage"]["prompt_tokens"], 5);
    let pooled = check(&fleet, &router, "/pooling", &texts).await;
    assert_eq!(pooled["data"][1]["data"], *vectors(1));
    let classes = check(&fleet, &router, "/classify", &texts).await;
    assert_eq!(classes["data"][2]["num_classes"], 2);
    assert!(
        classes["data"][0]["label"]
            .as_str()
            .unwrap()
            .starts_with("LABEL_")
    );
}

#[tokio::test]
async fn scores_and_ranks_are_served_at_each_of_their_paths() {
    let (fleet, router) = one().await;
    let pairs = json!({"model": "mock", "text_1": "rain", "text_2": ["wet", "dry", "warm"]});
    let texts = json!({"model": "mock", "query": "rain", "documents": ["wet", "dry", "warm"], "top_n": 2});
    for path in ["/score", "/v1/score"] {
        let scored = check(&fleet, &router, path, &pairs).await;
        assert_eq!(scored["data"].as_array().unwrap().len(), 3);
    }
    let scored = check(&fleet, &router, "/score", &pairs).await;
    let score = |index: &Value| scored["data"][index.as_u64().unwrap() as usize]["score"].as_f64();
    for path in ["/rerank", "/v1/rerank", "/v2/rerank"] {
        let ranked = check(&fleet, &router, path, &texts).await;
        assert_eq!(ranked["results"].as_array().unwrap().len(), 2);
        let [best, next] = [0, 1].map(|place| &ranked["results"][place]);
        assert_eq!(best["relevance_score"].as_f64(), score(&best["index"]));
        assert!(score(&best["index"]) > score(&next["index"]));
    }
    let refused = router
        .client
        .post(
            "/score",
            &json!({"model": "mock", "text_1": ["a", "b"], "text_2": ["c", "d", "e"]}),
        )
        .await
        .unwrap();
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text());
}

#[tokio::test]
async fn token_ids_are_continued_whole_and_streamed() {
    let (fleet, router) = one().await;
    let path = "/inference/v1/generate";
    let mut body = json!({"model": "mock", "token_ids": [20, 21, 22], "sampling_params": {"max_tokens": 4}});
    let whole = check(&fleet, &router, path, &body).await;
    let ids = whole["choices"][0]["token_ids"].as_array().unwrap();
    assert_eq!((ids.len(), &whole["usage"]["prompt_tokens"]), (4, &json!(3)));
    body["stream"] = true.into();
    let streamed = router.client.post(path, &body).await.unwrap();
    let streamed: Vec<Value> = chunks(&streamed)
        .iter()
        .flat_map(|chunk| chunk["choices"][0]["token_ids"].as_array().unwrap().clone())
        .collect();
    assert_eq!(streamed, *ids);
}

#[tokio::test]
async fn invocations_take_the_bodies_of_other_paths() {
    let (fleet, router) = one().await;
    for (path, body) in [
        (
            "/v1/completions",
            json!({"model": "mock", "prompt": "hi", "max_tokens": 3}),
        ),
        ("/v1/embeddings", json!({"model": "mock", "input": "hi"})),
        (
            "/rerank",
            json!({"model": "mock", "query": "rain", "documents": ["wet", "dry"]}),
        ),
    ] {
        let own = check(&fleet, &router, path, &body).await;
        let invoked = check(&fleet, &router, "/invocations", &body).await;
        let gist = |answer: &Value| {
            (
                answer["data"].clone(),
                answer["results"].clone(),
                answer["choices"][0]["text"].clone(),
            )
        };
        assert_eq!(gist(&invoked), gist(&own), "{path}");
    }
}

#[tokio::test]
async fn tokens_of_a_text_are_those_of_the_text_of_its_tokens() {
    let (_fleet, router) = one().await;
    let tokens = async |text: &Value| {
        let body = json!({"model": "mock", "prompt": text});
        post(&router, "/tokenize", &body).await["tokens"].clone()
    };
    let first = tokens(&json!(" three plain words")).await;
    assert_eq!(first.as_array().unwrap().len(), 3);
    let text = post(&router, "/detokenize", &json!({"model": "mock", "tokens": first})).await;
    assert_eq!(tokens(&text["prompt"]).await, first);
}

/// Returns a second of silence: 8 kHz, 8 bits.
fn wav() -> Vec<u8> {
    let mut wav = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    for number in [8000_u32, 8000] {
        wav.extend(number.to_le_bytes());
    }
    wav.extend(b"\x01\0\x08\0data\0\0\0\0");
    wav.resize(44 + 8000, 0x80);
    wav
}

async fn send_form(router: &TestRouter, path: &str, fields: &[(&str, &str)]) -> Answer {
    let field = |(name, value): &(&str, &str)| {
        format!("--bound\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let mut body: Vec<u8> = fields.iter().map(field).collect::<String>().into();
    body.extend(b"--bound\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n");
    body.extend(wav());
    body.extend(b"\r\n--bound--\r\n");
    let headers = [("content-type", "multipart/form-data; boundary=bound")];
    let sent = router
        .client
        .stream(Method::POST, path, &headers, Bytes::from(body.clone()));
    sent.await.unwrap().whole().await.unwrap()
}

fn chunks(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let text = answer.text();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let chunks = data.filter(|data| *data != "[DONE]");
    chunks.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn recordings_are_written_down_and_translated_whole_and_streamed() {
    let (fleet, router) = one().await;
    for (path, object) in [
        ("/v1/audio/transcriptions", "transcription.chunk"),
        ("/v1/audio/translations", "translation.chunk"),
    ] {
        let whole = send_form(&router, path, &[("model", "mock")]).await;
        assert_eq!(whole.status, StatusCode::OK, "{}", whole.text());
        let whole = whole.json().unwrap();
        // Only transcriptions count.
        let usage = (object == "transcription.chunk").then(|| json!({"type": "duration", "seconds": 1}));
        assert_eq!(whole["usage"], usage.unwrap_or_default());
        let streamed = send_form(&router, path, &[("model", "mock"), ("stream", "true")]).await;
        let streamed = chunks(&streamed);
        assert!(
            streamed.iter().all(|chunk| chunk["object"] == object),
            "{streamed:?}"
        );
        let deltas = streamed
            .iter()
            .map(|chunk| &chunk["choices"][0]["delta"]["content"]);
        let text: String = deltas.filter_map(Value::as_str).collect();
        assert_eq!(text.trim(), whole["text"]);
        let sent = fleet.engines[0].requests(path);
        let file = wav();
        assert!(
            sent.iter()
                .all(|sent| sent.body.windows(file.len()).any(|part| part == file))
        );
    }
    let verbose = [
        ("model", "mock"),
        ("response_format", "verbose_json"),
        ("language", "de"),
    ];
    let verbose = send_form(&router, "/v1/audio/transcriptions", &verbose).await;
    let verbose = verbose.json().unwrap();
    assert_eq!(
        (&verbose["language"], &verbose["duration"]),
        (&json!("de"), &json!(1.0))
    );
    let unknown = send_form(&router, "/v1/audio/transcriptions", &[("model", "other")]).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND, "{}", unknown.text());
}
