//! Registering, listing and unregistering; and values accepted here that upstream refuses.

use serde_json::{Value, json};

use crate::service::{ON_DEVICE, Running, own_worker, registration};

#[test]
fn a_registration_is_answered_listed_and_idempotent() {
    let running = Running::start();
    let body = registration("a", json!({"replay_endpoint": "tcp://a:5558", "tenant_id": ""}));
    let answer = running.post("/register", &body).ok();
    assert_eq!(
        answer,
        json!({"status": "registered successfully", "instance_id": "a"})
    );
    running.post("/register", &body).ok();
    assert_eq!(running.followed().len(), 1);
    let services = running.get("/services").ok();
    assert_eq!(
        services,
        json!({"count": 1, "services": [{
            "Endpoint": "tcp://a:5557", "ReplayEndpoint": "tcp://a:5558", "Type": "vLLM", "ModelName": "llama",
            "LoraName": "", "TenantID": "default", "InstanceID": "a", "BlockSize": 4, "DPRank": 0, "CacheGroup": null,
            "HashProfile": null, "State": "live", "HeldBlocks": 0,
        }]})
    );
}

#[test]
fn unregistering_an_engine_removes_its_blocks() {
    let running = Running::start();
    let worker = running.register("a", json!({}));
    running.store(worker, 0, &[1, 2, 3, 4], ON_DEVICE);
    let answer = running
        .post("/unregister", &json!({"instance_id": "a", "dp_rank": 0}))
        .ok();
    assert_eq!(
        answer,
        json!({"status": "unregistered successfully", "removed_instances": ["a|default|0"]})
    );
    assert!(running.followed().is_empty());
    let query = json!({"model": "llama", "block_size": 4, "token_ids": [1, 2, 3, 4]});
    assert_eq!(running.post("/query", &query).ok(), json!({"instances": {}}));
    assert_eq!(
        running.get("/global_view").ok(),
        json!({"context_count": 0, "contexts": []})
    );
    // Upstream keeps the context and its profile until a restart.
    running.register("a", json!({"block_size": 8}));
}

#[test]
fn a_rank_above_all_others_is_not_found_when_unregistering() {
    let running = Running::start();
    running.register("a", json!({"dp_rank": 65_535}));
    let body = json!({"instance_id": "a", "dp_rank": 70_000});
    let answer = running.post("/unregister", &body);
    assert_eq!(answer.status, 404);
    assert_eq!(answer.json()["error"], "service not found: a|default|70000");
    assert_eq!(running.followed().len(), 1);
}

#[test]
fn fields_of_the_public_documentation_are_taken_when_unregistering() {
    let running = Running::start();
    running.register("a", json!({}));
    let body = json!({
        "instance_id": "a", "dp_rank": 0, "type": "vLLM", "modelname": "llama", "block_size": 4, "lora_name": "",
    });
    running.post("/unregister", &body).ok();
}

#[test]
fn more_is_taken_than_upstream_takes() {
    let running = Running::start();
    let profile = |algorithm: &str, seed: Value| {
        json!({"hash_profile": {
            "strategy": "vllm_v1", "algorithm": algorithm, "python_hash_seed": seed, "index_projection": "low64_be",
        }})
    };
    running.register("sglang", json!({"type": "SGLang"}));
    running.register("salted", json!({"additionalsalt": "x", "block_size": 5}));
    running.register(
        "unset",
        merged(profile("sha256", Value::Null), json!({"block_size": 6})),
    );
    running.register(
        "named",
        merged(
            profile("sha256_cbor", json!("vllm-none-hash")),
            json!({"block_size": 7}),
        ),
    );
    running.register(
        "xxh",
        merged(profile("xxhash", Value::Null), json!({"block_size": 8})),
    );
    running.register(
        "xxh-0",
        merged(profile("xxhash_cbor", json!("0")), json!({"block_size": 9})),
    );
    let rolling = json!({"hash_profile": {"strategy": "rfc1527", "algorithm": "xxh3_64"}, "block_size": 10});
    running.register("rolling", rolling);
    let view = running.get("/global_view").ok();
    let root = |block_size: u64| {
        let contexts = view["contexts"].as_array().unwrap();
        let context = contexts
            .iter()
            .find(|context| context["block_size"] == block_size)
            .unwrap();
        context["hash_profile"]["root_digest"].clone()
    };
    assert_eq!(
        root(6),
        "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198"
    );
    assert_eq!(
        root(7),
        "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0"
    );
    assert_eq!(root(8), Value::Null);
    assert_eq!(root(9), "1ebe36576dcb573f26b99533a20aaeca");
    assert_eq!(root(10), Value::Null);
}

fn merged(mut one: Value, other: Value) -> Value {
    for (key, value) in other.as_object().unwrap() {
        one[key] = value.clone();
    }
    one
}

#[test]
fn the_view_reports_each_context_with_its_instances_and_ranks() {
    let running = Running::start();
    let first = running.register("a", json!({}));
    running.register("a", json!({"dp_rank": 1, "endpoint": "tcp://a:5558"}));
    running.register("b", json!({"lora_name": "ad"}));
    running.store(first, 0, &[1, 2, 3, 4, 5, 6, 7, 8], ON_DEVICE);
    let view = running.get("/global_view").ok();
    assert_eq!(view["context_count"], 2);
    let base = view["contexts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|context| context["lora_name"] == "")
        .unwrap();
    assert_eq!(
        *base,
        json!({
            "model_name": "llama", "lora_name": "", "block_size": 4, "tenant_id": "default", "prefix_count": 2,
            "hash_profile": null, "instances": {"a": [0, 1]},
        })
    );
}

#[test]
fn the_routers_workers_are_instances_already() {
    let running = Running::start_with(None, vec![own_worker()]);
    let services = running.get("/services").ok();
    assert_eq!(services["services"][0]["InstanceID"], "gpu-9");
    assert_eq!(services["services"][0]["ModelName"], "llama");
    let same_name = running.post("/register", &registration("gpu-9", json!({})));
    assert_eq!(
        same_name.json()["error"],
        "conflicting registration for service key: gpu-9|default|0"
    );
    let same_endpoint = running.post(
        "/register",
        &registration("a", json!({"endpoint": "tcp://10.0.0.9:5557"})),
    );
    assert_eq!(
        same_endpoint.json()["error"],
        "conflicting active registration for endpoint: tcp://10.0.0.9:5557"
    );
    assert_eq!(
        running.get("/health").ok(),
        json!({"status": "ok", "services": 1, "live": 1, "contexts": 0})
    );
}

#[test]
fn a_store_is_no_instance_of_a_context() {
    let running = Running::start();
    running.register_any("pool", json!({"type": "Mooncake"}));
    assert_eq!(
        running.get("/global_view").ok(),
        json!({"context_count": 0, "contexts": []})
    );
    assert_eq!(running.get("/health").ok()["contexts"], 0);
    running.register("a", json!({}));
    let view = running.get("/global_view").ok();
    assert_eq!(view["contexts"][0]["instances"], json!({"a": [0]}));
}
