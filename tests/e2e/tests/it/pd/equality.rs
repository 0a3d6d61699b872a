//! An answer of two engines is the answer of one, token by token.

use bytes::Bytes;
use harness::{Client, SplitFleet, TestRouter, route_all};
use mock_engine::PdDialect;
use serde_json::{Value, json};

use super::{CHAT, DIALECTS, reference};
use crate::{fast, long_prompt};

const COMPLETIONS: &str = "/v1/completions";

/// Returns requests whose prompts share nothing between different numbers.
fn requests(number: usize) -> Vec<(&'static str, Value)> {
    let text = |part: usize| long_prompt(number * 10 + part);
    let ids: Vec<usize> = (0..200).map(|token| number * 1000 + token).collect();
    let messages = |part: usize| {
        json!([
            { "role": "system", "content": "Answer briefly." }, { "role": "user", "content": text(part) },
        ])
    };
    vec![
        (CHAT, json!({ "messages": messages(0), "max_tokens": 30 })),
        (
            CHAT,
            json!({ "messages": messages(1), "max_completion_tokens": 1, "temperature": 0.5, "unheard_of": [1.50] }),
        ),
        (CHAT, json!({ "messages": messages(2) })),
        (COMPLETIONS, json!({ "prompt": text(3), "max_tokens": 30 })),
        (
            COMPLETIONS,
            json!({ "prompt": ids, "max_tokens": 7, "stop": ["x"] }),
        ),
        (
            COMPLETIONS,
            json!({ "prompt": "hi", "max_tokens": 7, "min_tokens": 5 }),
        ),
    ]
}

/// Returns the contents of an answer, event by event if streamed, without times and ids.
async fn answer_of(client: &Client, path: &str, body: &Value) -> (bool, Vec<Value>) {
    let sent = client.stream(http::Method::POST, path, &[], Bytes::from(body.to_string()));
    let answer = sent.await.unwrap().whole().await.unwrap();
    assert_eq!(answer.status, http::StatusCode::OK, "{body}: {}", answer.text());
    let split = !answer.header("x-conductor-prefill-worker").is_empty();
    let text = answer.text();
    let events: Vec<_> = text
        .split("\n\n")
        .map(|event| event.trim_start_matches("data: "))
        .filter(|event| !event.is_empty())
        .collect();
    assert!(events.len() > 1 || body["stream"] != true, "{text}");
    let gist = |event: &&str| match serde_json::from_str::<Value>(event) {
        Ok(mut event) => {
            // The decode engine decides who stored uncached tokens.
            if let Some(details) = event["usage"]["prompt_tokens_details"].as_object_mut() {
                details.remove("created_cache_tokens");
            }
            json!([event["object"], event["choices"], event["usage"]])
        }
        Err(_) => json!(event),
    };
    (split, events.iter().map(gist).collect())
}

#[track_caller]
fn check(dialect: PdDialect, path: &str, body: &Value, two: &[Value], one: &[Value]) {
    assert_eq!(two, one, "{dialect:?} {path} {body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_engines_answer_what_one_does() {
    let mut number = 0;
    for dialect in DIALECTS {
        let (_engine, reference) = reference().await;
        let fleet = SplitFleet::start(dialect, (1, 1), |config| fast(0, config))
            .await
            .unwrap();
        let toml = fleet.pool_toml("chat", "") + &route_all("round-robin");
        let router = TestRouter::start(&toml).await.unwrap();
        for stream in [false, true] {
            number += 1;
            for (path, mut body) in requests(number) {
                body["model"] = "mock".into();
                body["stream"] = stream.into();
                if stream {
                    body["stream_options"] = json!({ "include_usage": true });
                }
                let (_, one) = answer_of(&reference, path, &body).await;
                let (split, two) = answer_of(&router.client, path, &body).await;
                assert!(split, "{dialect:?} {path} {body}");
                check(dialect, path, &body, &two, &one);
            }
        }
    }
}
