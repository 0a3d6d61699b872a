//! `/cache` of the first generation.

use serde_json::{Value, json};

use crate::service::{ON_DEVICE, Running, own_worker};

fn cache(changes: Value) -> Value {
    let mut body = json!({
        "instances": ["10.0.0.1", "b", "10.0.0.9"], "token_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9], "model_name": "llama",
        "lora_id": -1,
    });
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(body.as_object_mut().unwrap().remove(key)),
            value => body[key] = value.clone(),
        }
    }
    body
}

#[test]
fn engines_are_listed_by_address_or_name_in_percent_of_whole_blocks() {
    let running = Running::start_with(None, vec![own_worker()]);
    let first = running.register("a", json!({"endpoint": "tcp://10.0.0.1:5557"}));
    let second = running.register("b", json!({}));
    running.store(first, 0, &[1, 2, 3, 4], ON_DEVICE);
    running.store(second, 0, &[1, 2, 3, 4, 5, 6, 7, 8], ON_DEVICE);
    running.store(own_worker().worker.id(), 0, &[1, 2, 3, 4], ON_DEVICE);
    let expected = json!({"10.0.0.1": 50, "b": 100, "10.0.0.9": 50});
    assert_eq!(
        running.post("/cache", &cache(json!({}))).ok(),
        json!({
            "best_prefiller": "b", "cache_hit_percent": 100, "matched_engines": expected, "HitStatus": expected,
            "status": "ok",
        })
    );
    let fewer = running
        .post("/cache", &cache(json!({"instances": ["10.0.0.1"]})))
        .ok();
    assert_eq!(fewer["best_prefiller"], "10.0.0.1");
}

#[test]
fn no_engine_is_best_if_nothing_matches() {
    let running = Running::start();
    running.register("b", json!({}));
    let nothing = json!({
        "best_prefiller": null, "cache_hit_percent": 0, "matched_engines": {}, "HitStatus": {}, "status": "ok",
    });
    assert_eq!(running.post("/cache", &cache(json!({}))).ok(), nothing);
    assert_eq!(
        running.post("/cache", &cache(json!({"lora_id": 3}))).ok(),
        nothing
    );
    assert_eq!(
        running.post("/cache", &cache(json!({"model_name": "x"}))).ok(),
        nothing
    );
    assert_eq!(
        running.post("/cache", &cache(json!({"token_ids": []}))).ok(),
        nothing
    );
}

#[test]
fn requests_are_refused_in_the_words_of_that_generation() {
    let running = Running::start();
    let answered = |changes: Value| {
        let answer = running.post("/cache", &cache(changes));
        assert_eq!(answer.status, 400);
        answer.json()["error"].as_str().unwrap().to_owned()
    };
    assert_eq!(answered(json!({"instances": null})), "missing key: instances");
    assert_eq!(
        answered(json!({"token_ids": "x"})),
        "the value of token_ids is not an array"
    );
    assert_eq!(
        answered(json!({"instances": ["a", 1]})),
        "\"instances[1]\" is not a string"
    );
    assert_eq!(
        answered(json!({"model_name": 1})),
        "\"the value of: model_name\" is not a string"
    );
    assert_eq!(
        answered(json!({"lora_id": "x"})),
        "\"the value of: lora_id\" is not a number"
    );
}

#[test]
fn numbers_may_be_floats() {
    let running = Running::start();
    let worker = running.register("b", json!({}));
    running.store(worker, 0, &[1, 2, 3, 4], ON_DEVICE);
    let body = cache(json!({"token_ids": [1.0, 2.0, 3.0, 4.9], "lora_id": -1.0}));
    assert_eq!(running.post("/cache", &body).ok()["cache_hit_percent"], 100);
}
