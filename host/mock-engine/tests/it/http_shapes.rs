//! Answers have the fields of recorded vLLM 0.32 answers, and the errors its words.

use std::collections::BTreeSet;

use mock_engine::{MockConfig, MockEngine};
use serde_json::{Value, json};

use crate::client::{get, post, post_text};
use crate::{capture, instant, start};

/// Fields of recorded answers by file name; a dot goes into an object or into the elements of an array.
const FIELDS: [(&str, &str); 8] = [
    (
        "chat",
        "choices choices.finish_reason choices.index choices.logprobs choices.message \
         choices.message.annotations choices.message.audio choices.message.content \
         choices.message.function_call choices.message.reasoning choices.message.refusal choices.message.role \
         choices.routed_experts choices.stop_reason choices.token_ids created ec_transfer_params id \
         kv_transfer_params metrics model object prompt_logprobs prompt_text prompt_token_ids service_tier \
         system_fingerprint usage usage.completion_tokens usage.completion_tokens_details usage.prompt_tokens \
         usage.prompt_tokens_details usage.prompt_tokens_details.cached_tokens \
         usage.prompt_tokens_details.created_cache_tokens usage.prompt_tokens_details.multimodal_tokens \
         usage.total_tokens",
    ),
    (
        "completion",
        "choices choices.finish_reason choices.index choices.logprobs choices.prompt_logprobs \
         choices.prompt_token_ids choices.routed_experts choices.stop_reason choices.text choices.token_ids \
         created ec_transfer_params id kv_transfer_params metrics model object service_tier system_fingerprint \
         usage usage.completion_tokens usage.completion_tokens_details usage.prompt_tokens \
         usage.prompt_tokens_details usage.prompt_tokens_details.cached_tokens \
         usage.prompt_tokens_details.created_cache_tokens usage.prompt_tokens_details.multimodal_tokens \
         usage.total_tokens",
    ),
    (
        "chat_stream",
        "choices choices.delta choices.delta.content choices.delta.role choices.finish_reason choices.index \
         choices.logprobs choices.stop_reason choices.token_ids created id model object prompt_text \
         prompt_token_ids system_fingerprint usage usage.completion_tokens usage.prompt_tokens \
         usage.prompt_tokens_details usage.prompt_tokens_details.cached_tokens \
         usage.prompt_tokens_details.created_cache_tokens usage.total_tokens",
    ),
    (
        "completion_stream",
        "choices choices.finish_reason choices.index choices.logprobs choices.prompt_token_ids \
         choices.stop_reason choices.text choices.token_ids created id model object system_fingerprint usage \
         usage.completion_tokens usage.prompt_tokens usage.prompt_tokens_details \
         usage.prompt_tokens_details.cached_tokens usage.total_tokens",
    ),
    (
        "completion_stream_nousage",
        "choices choices.finish_reason choices.index choices.logprobs choices.prompt_token_ids \
         choices.stop_reason choices.text choices.token_ids created id model object system_fingerprint",
    ),
    ("tokenize_chat", "count max_model_len token_strs tokens"),
    (
        "kv_event_sources",
        "0 0.buffer_steps 0.enable_kv_cache_events 0.endpoint 0.hwm 0.max_queue_size 0.publisher \
         0.replay_endpoint 0.topic",
    ),
    (
        "err_bad_model",
        "error error.code error.message error.param error.type",
    ),
];

fn add_fields(prefix: &str, value: &Value, fields: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let path = if prefix.is_empty() {
                    key.clone()
                } else {
                    format!("{prefix}.{key}")
                };
                add_fields(&path, value, fields);
                fields.insert(path);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| add_fields(prefix, value, fields)),
        _ => {}
    }
}

fn fields(documents: &[Value]) -> String {
    let mut fields = BTreeSet::new();
    for document in documents {
        add_fields("", document, &mut fields);
    }
    fields.into_iter().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(name: &str, found: &[Value]) {
    let (_, expected) = FIELDS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a fixture");
    assert_eq!(fields(found), *expected, "{name}");
}

fn chat() -> Value {
    json!({"model": "mock", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4})
}

fn completion() -> Value {
    json!({"model": "mock", "prompt": "import os", "max_tokens": 4, "some_unknown_field": [1]})
}

fn streaming(mut body: Value, usage: bool) -> Value {
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": usage});
    body
}

#[test]
fn the_fixtures_are_the_recorded_fields() {
    for (name, expected) in FIELDS {
        let Some(text) = capture(&format!("http/{name}.http")) else {
            return;
        };
        let body = text.lines().skip_while(|line| !line.is_empty());
        let documents = body.map(|line| line.strip_prefix("data: ").unwrap_or(line));
        let documents: Vec<Value> = documents
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        assert_eq!(fields(&documents), expected, "{name}");
    }
}

#[tokio::test]
async fn answers_have_the_recorded_fields() {
    let engine = start(instant()).await;
    let chat_path = "/v1/chat/completions";
    check("chat", &[post(&engine, chat_path, &chat()).await.json()]);
    check(
        "chat_stream",
        &post(&engine, chat_path, &streaming(chat(), true)).await.chunks(),
    );
    let path = "/v1/completions";
    check("completion", &[post(&engine, path, &completion()).await.json()]);
    check(
        "completion_stream",
        &post(&engine, path, &streaming(completion(), true)).await.chunks(),
    );
    let plain = post(&engine, path, &streaming(completion(), false)).await;
    check("completion_stream_nousage", &plain.chunks());
    assert!(plain.text().ends_with("}\n\ndata: [DONE]\n\n"));
    check(
        "tokenize_chat",
        &[post(&engine, "/tokenize", &chat()).await.json()],
    );
    check(
        "kv_event_sources",
        &[get(&engine, "/kv_event_sources").await.json()],
    );
    let unknown = json!({"model": "nope", "prompt": "x"});
    check("err_bad_model", &[post(&engine, path, &unknown).await.json()]);
}

#[tokio::test]
async fn a_stream_has_the_content_of_a_plain_answer() {
    let engine = start(instant()).await;
    let plain = post(&engine, "/v1/chat/completions", &chat()).await;
    assert_eq!(plain.headers["content-type"], "application/json");
    let plain = plain.json();
    let stream = post(&engine, "/v1/chat/completions", &streaming(chat(), true)).await;
    assert_eq!(stream.headers["content-type"], "text/event-stream; charset=utf-8");
    let chunks = stream.chunks();
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(plain["choices"][0]["message"]["content"], text);
    assert_eq!(plain["id"], "chatcmpl-my-req-1");
    assert_eq!(chunks[0]["id"], "chatcmpl-my-req-1");
    // The opening, four tokens, the usage.
    assert_eq!(chunks.len(), 6);
    assert_eq!(chunks[4]["choices"][0]["finish_reason"], "length");
    assert_eq!(chunks[5]["usage"]["completion_tokens"], 4);
}

#[tokio::test]
async fn an_answer_that_nothing_cuts_short_stops_by_itself() {
    let engine = start(instant()).await;
    let mut body = chat();
    body["max_tokens"] = 100.into();
    let answer = post(&engine, "/v1/chat/completions", &body).await.json();
    assert_eq!(
        (
            &answer["choices"][0]["finish_reason"],
            &answer["usage"]["completion_tokens"]
        ),
        (&json!("stop"), &json!(5))
    );
    body["ignore_eos"] = true.into();
    let answer = post(&engine, "/v1/chat/completions", &body).await.json();
    assert_eq!(answer["usage"]["completion_tokens"], 100);
}

#[tokio::test]
async fn tokenize_gives_the_prompts_own_tokens() {
    let engine = start(instant()).await;
    let ids = post(&engine, "/tokenize", &chat()).await.json();
    let answer = post(&engine, "/v1/chat/completions", &chat()).await.json();
    assert_eq!(ids["count"], answer["usage"]["prompt_tokens"]);
    let body = json!({"prompt": ids["tokens"], "max_tokens": 4});
    let same = post(&engine, "/v1/completions", &body).await.json();
    assert_eq!(
        same["choices"][0]["text"],
        answer["choices"][0]["message"]["content"]
    );
    let strings = json!({"prompt": "hello world", "return_token_strs": true});
    let strings = post(&engine, "/tokenize", &strings).await.json();
    assert_eq!(strings["token_strs"], json!(["hello", " world"]));
}

#[track_caller]
fn check_error(found: &crate::client::Reply, status: u16, kind: &str, param: Value, message: &str) {
    let error = &found.json()["error"];
    assert_eq!((found.status.as_u16(), &error["code"]), (status, &json!(status)));
    assert_eq!((&error["type"], &error["param"]), (&json!(kind), &param));
    let text = error["message"].as_str().expect("a message");
    assert!(text.contains(message), "{text}");
}

#[tokio::test]
async fn error_responses_equal_those_of_vllm() {
    let engine = start(instant()).await;
    let path = "/v1/completions";
    let unknown = post(&engine, path, &json!({"model": "nope", "prompt": "x"})).await;
    let words = "The model `nope` does not exist. Valid aliases: mock.";
    check_error(&unknown, 404, "NotFoundError", json!("model"), words);
    let negative = post(&engine, path, &json!({"prompt": "x", "max_tokens": -1})).await;
    let words = "max_tokens must be at least 1, got -1. (parameter=max_tokens, value=-1)";
    check_error(&negative, 400, "BadRequestError", json!("max_tokens"), words);
    let long = post(&engine, path, &json!({"prompt": vec![1; 1024], "stream": true})).await;
    let words = "maximum context length is 1024 tokens. However, your prompt contains 1024 input tokens";
    check_error(&long, 400, "BadRequestError", json!("input_tokens"), words);
    let missing = post(&engine, "/v1/chat/completions", &json!({"model": "mock"})).await;
    check_error(
        &missing,
        400,
        "Bad Request",
        json!("body.messages"),
        "1 validation error",
    );
    check_error(
        &post_text(&engine, path, "{\"a\":").await,
        400,
        "Bad Request",
        Value::Null,
        "validation",
    );
    let nowhere = get(&engine, "/v1/nothing").await;
    assert_eq!(
        (nowhere.status.as_u16(), nowhere.json()),
        (404, json!({"detail": "Not Found"}))
    );
    let method = get(&engine, path).await;
    assert_eq!(
        (method.status.as_u16(), method.json()),
        (405, json!({"detail": "Method Not Allowed"}))
    );
}

#[tokio::test]
async fn responses_and_embeddings_are_well_formed() {
    let engine = start(instant()).await;
    let body = json!({"input": "hello", "max_output_tokens": 3});
    let plain = post(&engine, "/v1/responses", &body).await.json();
    assert_eq!(
        (&plain["id"], &plain["status"]),
        (&json!("resp_my-req-1"), &json!("incomplete"))
    );
    assert_eq!(plain["usage"]["output_tokens"], 3);
    let stream = post(&engine, "/v1/responses", &streaming(body, false))
        .await
        .chunks();
    let names: Vec<_> = stream
        .iter()
        .map(|event| event["type"].as_str().expect("a type"))
        .collect();
    let delta = "response.output_text.delta";
    let end = ["response.output_text.done", "response.incomplete"];
    assert_eq!(names, ["response.created", delta, delta, delta, end[0], end[1]]);
    let text = &plain["output"][0]["content"][0]["text"];
    assert_eq!(
        (
            &stream[4]["text"],
            &stream[5]["response"]["output"][0]["content"][0]["text"]
        ),
        (text, text)
    );
    let vectors = post(&engine, "/v1/embeddings", &json!({"input": ["a b", "c", "a b"]}))
        .await
        .json();
    assert_eq!(vectors["usage"]["prompt_tokens"], 5);
    assert_eq!(vectors["data"][0]["embedding"], vectors["data"][2]["embedding"]);
    assert_ne!(vectors["data"][0]["embedding"], vectors["data"][1]["embedding"]);
}

#[tokio::test]
async fn adapters_are_loaded_and_unloaded_while_it_runs() {
    let engine = start(instant()).await;
    let send = async |status: u16| {
        let body = json!({"model": "ad", "prompt": vec![7; 9], "max_tokens": 1});
        let answer = post(&engine, "/v1/completions", &body).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        answer.json()
    };
    let error = &send(404).await["error"];
    assert_eq!(
        *error,
        json!({
            "message": "The model `ad` does not exist. Valid aliases: mock.",
            "type": "NotFoundError", "param": "model", "code": 404,
        })
    );
    let load = json!({"lora_name": "ad", "lora_path": "/adapters/ad"});
    let loaded = post(&engine, "/v1/load_lora_adapter", &load).await;
    assert_eq!(loaded.text(), "Success: LoRA adapter 'ad' added successfully.");
    assert_eq!(
        post(&engine, "/v1/load_lora_adapter", &load)
            .await
            .status
            .as_u16(),
        400
    );
    assert_eq!(send(200).await["model"], "ad");
    let models = get(&engine, "/v1/models").await.json();
    assert_eq!(models["data"][1]["id"], "ad");
    assert_eq!(models["data"][1]["parent"], "mock");
    let unload = json!({"lora_name": "ad"});
    assert_eq!(
        post(&engine, "/v1/unload_lora_adapter", &unload)
            .await
            .status
            .as_u16(),
        200
    );
    assert_eq!(
        post(&engine, "/v1/unload_lora_adapter", &unload)
            .await
            .status
            .as_u16(),
        404
    );
    send(404).await;
}

fn metric(page: &str, name: &str) -> f64 {
    let line = page
        .lines()
        .find(|line| line.starts_with(&format!("vllm:{name}{{")));
    let value = line.and_then(|line| line.rsplit(' ').next()).expect("the metric");
    value.parse().expect("a number")
}

#[tokio::test]
async fn metrics_and_models_have_what_routers_look_for() {
    let engine: MockEngine = start(MockConfig {
        loras: vec!["ad".to_owned()],
        ..instant()
    })
    .await;
    for _ in 0..2 {
        post(&engine, "/v1/completions", &json!({"prompt": vec![7; 9]})).await;
    }
    let page = get(&engine, "/metrics").await;
    let page = page.text();
    assert_eq!(metric(page, "prefix_cache_queries_total"), 18.0);
    assert_eq!(metric(page, "prefix_cache_hits_total"), 8.0);
    assert_eq!(metric(page, "num_requests_running"), 0.0);
    assert!(page.contains("block_size=\"4\""));
    let models = get(&engine, "/v1/models").await.json();
    let found: Vec<_> = models["data"]
        .as_array()
        .expect("models")
        .iter()
        .map(|m| (&m["id"], &m["parent"]))
        .collect();
    assert_eq!(
        found,
        [(&json!("mock"), &Value::Null), (&json!("ad"), &json!("mock"))]
    );
    assert_eq!(
        get(&engine, "/version").await.json(),
        json!({"version": "0.32.0"})
    );
}
