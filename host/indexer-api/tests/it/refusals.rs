//! Errors of upstream's third generation, with its statuses, reasons, fields and messages, as probed there.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::service::{BODY_LIMIT, Running, registration};

#[track_caller]
fn check(running: &Running, path: &str, body: &Value, reason: &str, field: Option<&str>, error: &str) {
    let answer = running.post(path, body);
    let answered = answer.json();
    assert_eq!(answer.status, 400, "{body} -> {answered}");
    assert_eq!(answered["reason"], reason, "{body} -> {answered}");
    assert_eq!(answered["field"].as_str(), field, "{body} -> {answered}");
    assert_eq!(answered["error"], error, "{body} -> {answered}");
}

fn profile(changes: &[(&str, Value)]) -> Value {
    let mut profile = json!({
        "strategy": "vllm_v1", "algorithm": "sha256_cbor", "python_hash_seed": "0", "index_projection": "low64_be",
    });
    for (key, value) in changes {
        profile[key] = value.clone();
    }
    json!({"hash_profile": profile})
}

#[track_caller]
fn check_registration(running: &Running, changes: Value, reason: &str, error: &str) {
    let field = changes.as_object().unwrap().keys().next().unwrap().clone();
    let body = registration("a", changes);
    check(running, "/register", &body, reason, Some(&field), error);
}

#[test]
fn registrations_need_their_fields() {
    let running = Running::start();
    for field in [
        "endpoint",
        "type",
        "modelname",
        "instance_id",
        "block_size",
        "dp_rank",
    ] {
        let error = format!("{field} is required");
        check_registration(&running, json!({field: null}), "missing", &error);
    }
    for field in ["endpoint", "type", "modelname", "instance_id"] {
        let error = format!("{field} must not be empty");
        check_registration(&running, json!({field: ""}), "invalid_value", &error);
    }
    for field in ["port", "root_digest", "python_hash_seed"] {
        let error = format!("unknown field: {field}");
        check_registration(&running, json!({field: 1}), "unknown_field", &error);
    }
}

#[test]
fn registrations_are_refused_for_their_types_as_upstream_does() {
    let running = Running::start();
    let texts = [
        "endpoint",
        "type",
        "modelname",
        "instance_id",
        "replay_endpoint",
        "lora_name",
        "tenant_id",
    ];
    for field in texts {
        let error = format!("{field} must be a string");
        check_registration(&running, json!({field: 1}), "invalid_type", &error);
    }
    for field in ["block_size", "dp_rank"] {
        let error = format!("{field} must be an integer");
        for value in [json!(1.5), json!(true), json!("1")] {
            check_registration(&running, json!({field: value}), "invalid_type", &error);
        }
    }
    let error = "cache_group must be an integer or null";
    check_registration(&running, json!({"cache_group": "0"}), "invalid_type", error);
    let error = "hash_profile must be a map";
    check_registration(&running, json!({"hash_profile": "x"}), "invalid_type", error);
}

#[test]
fn registrations_are_refused_for_their_values_as_upstream_does() {
    let running = Running::start();
    let refused = |changes, reason, error| check_registration(&running, changes, reason, error);
    let error = "type must be vLLM, SGLang or Mooncake";
    refused(json!({"type": "vllm"}), "invalid_value", error);
    let error = "block_size must be greater than zero";
    refused(json!({"block_size": 0}), "out_of_range", error);
    let error = "only cache group zero is supported";
    refused(json!({"cache_group": 1}), "unsupported", error);
    let error = "dp_rank must be a non-negative int";
    refused(json!({"dp_rank": -1}), "out_of_range", error);
}

#[test]
fn names_that_forge_log_lines_or_fill_metrics_are_refused() {
    let running = Running::start();
    for field in ["instance_id", "tenant_id", "modelname", "lora_name", "endpoint"] {
        let error = format!("{field} must not contain control characters");
        for forged in ["a\nWARN forged", "a\u{1b}[2J", "a\u{85}b"] {
            check_registration(&running, json!({field: forged}), "invalid_value", &error);
        }
    }
    for (field, most) in [
        ("instance_id", 128),
        ("tenant_id", 128),
        ("modelname", 512),
        ("lora_name", 512),
    ] {
        let error = format!("{field} must not be longer than {most} bytes");
        check_registration(&running, json!({field: "x".repeat(most + 1)}), "too_long", &error);
    }
    let long = json!({"instance_id": "x".repeat(129), "dp_rank": 0});
    let error = "instance_id must not be longer than 128 bytes";
    check(
        &running,
        "/unregister",
        &long,
        "too_long",
        Some("instance_id"),
        error,
    );
    assert!(running.followed().is_empty());
    running.register(
        "a",
        json!({"instance_id": "x".repeat(128), "modelname": "m".repeat(512)}),
    );
}

#[test]
fn only_the_configuration_names_paths_of_this_machine() {
    let running = Running::start();
    for field in ["endpoint", "replay_endpoint"] {
        for endpoint in ["ipc:///run/other.sock", "IPC:///run/other.sock", "inproc://x"] {
            let error = format!(
                "{field} must begin with tcp://: other transports are followed only where [[indexer.services]] names them"
            );
            check_registration(&running, json!({field: endpoint}), "invalid_value", &error);
        }
    }
}

#[test]
fn profiles_are_refused_as_upstream_refuses_them() {
    let running = Running::start();
    let refused = |key: &str, value: Value, reason: &str, error: &str| {
        let body = registration("a", profile(&[(key, value)]));
        check(&running, "/register", &body, reason, Some(key), error);
    };
    refused(
        "strategy",
        json!("v2"),
        "invalid_value",
        "unsupported hash strategy: v2",
    );
    refused(
        "algorithm",
        json!("md5"),
        "invalid_value",
        "unsupported hash algorithm: md5",
    );
    refused(
        "algorithm",
        json!(1),
        "invalid_type",
        "algorithm must be a string",
    );
    refused(
        "python_hash_seed",
        json!(0),
        "invalid_type",
        "python_hash_seed must be a string",
    );
    refused(
        "python_hash_seed",
        json!(""),
        "invalid_value",
        "python_hash_seed must not be empty",
    );
    refused(
        "index_projection",
        json!("x"),
        "invalid_value",
        "unsupported index projection: x",
    );
    refused("salt", json!("x"), "unknown_field", "unknown field: salt");
}

#[test]
fn checks_come_in_upstreams_order() {
    let running = Running::start();
    let mut body = registration("a", json!({}));
    let order = [
        "endpoint",
        "type",
        "modelname",
        "instance_id",
        "block_size",
        "replay_endpoint",
        "cache_group",
    ];
    for field in order {
        body[field] = json!([]);
    }
    for field in order {
        assert_eq!(running.post("/register", &body).json()["field"], field);
        body[field] = registration("a", json!({}))[field].clone();
        if body[field].is_null() {
            body.as_object_mut().unwrap().remove(field);
        }
    }
    // The value of a type is validated after everything but the rank.
    body["type"] = json!("X");
    body["dp_rank"] = json!(-1);
    assert_eq!(running.post("/register", &body).json()["field"], "type");
}

#[test]
fn conflicting_registrations_are_refused() {
    let running = Running::start();
    running.register("a", profile(&[]));
    let refused =
        |body: &Value, error: &str| check(&running, "/register", body, "invalid_registration", None, error);
    refused(
        &registration("a", json!({"block_size": 8})),
        "conflicting registration for service key: a|default|0",
    );
    refused(
        &registration("b", json!({"endpoint": "tcp://a:5557"})),
        "conflicting active registration for endpoint: tcp://a:5557",
    );
    refused(
        &registration("b", profile(&[("algorithm", json!("sha256"))])),
        "failed to register prefix context: registration conflicts with the ContextKey hash profile",
    );
    let bogus = running.post("/register", &registration("c", json!({"endpoint": "bogus"})));
    assert_eq!(bogus.status, 500);
    assert_eq!(
        bogus.json(),
        json!({"error": "Failed to subscribe: failed to start ZMQ client: initial connection failed: \
                         failed to connect to bogus: Invalid argument"})
    );
}

#[test]
fn unregistrations_are_refused_as_upstream_refuses_them() {
    let running = Running::start();
    let refused = |body: Value, reason: &str, field: &str, error: &str| {
        check(&running, "/unregister", &body, reason, Some(field), error);
    };
    refused(
        json!({"dp_rank": 0}),
        "missing",
        "instance_id",
        "instance_id is required",
    );
    refused(
        json!({"instance_id": "a"}),
        "missing",
        "dp_rank",
        "dp_rank is required",
    );
    for rank in [json!(-1), json!("0"), json!(0.5)] {
        let body = json!({"instance_id": "a", "dp_rank": rank});
        refused(
            body,
            "invalid_value",
            "dp_rank",
            "dp_rank must be a non-negative int",
        );
    }
    refused(
        json!({"endpoint": "x"}),
        "unknown_field",
        "endpoint",
        "unknown field: endpoint",
    );
    let unknown = running.post("/unregister", &json!({"instance_id": "a", "dp_rank": 0}));
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.json(), json!({"error": "service not found: a|default|0"}));
}

#[test]
fn queries_are_refused_as_upstream_refuses_them() {
    let running = Running::start();
    let refused = |changes: Value, reason: &str, field: &str, error: &str| {
        let mut body = json!({"model": "m", "block_size": 4, "token_ids": [1]});
        for (key, value) in changes.as_object().unwrap() {
            if value.is_null() && key != "lora_name" {
                body.as_object_mut().unwrap().remove(key);
            } else {
                body[key] = value.clone();
            }
        }
        check(&running, "/query", &body, reason, Some(field), error);
    };
    refused(
        json!({"lora_id": 1}),
        "unknown_field",
        "lora_id",
        "unknown field: lora_id",
    );
    refused(json!({"model": null}), "missing", "model", "model is required");
    refused(
        json!({"model": ""}),
        "invalid_value",
        "model",
        "model must not be empty",
    );
    refused(
        json!({"block_size": null}),
        "missing",
        "block_size",
        "block_size is required",
    );
    refused(
        json!({"block_size": 0}),
        "out_of_range",
        "block_size",
        "block_size must be a positive integer",
    );
    refused(
        json!({"token_ids": null}),
        "missing",
        "token_ids",
        "token_ids is required",
    );
    refused(
        json!({"token_ids": "x"}),
        "not_array",
        "token_ids",
        "token_ids must be an array",
    );
    refused(
        json!({"lora_name": null}),
        "invalid_type",
        "lora_name",
        "lora_name must be a string",
    );
    refused(
        json!({"tenant_id": 1}),
        "invalid_type",
        "tenant_id",
        "tenant_id must be a string",
    );
    refused(
        json!({"instance_id": 1}),
        "invalid_type",
        "instance_id",
        "instance_id must be a string",
    );
    // Missing fields are reported after all present ones are validated.
    refused(
        json!({"model": null, "tenant_id": 1}),
        "invalid_type",
        "tenant_id",
        "tenant_id must be a string",
    );
}

#[test]
fn a_bad_token_is_reported_with_its_index() {
    let running = Running::start();
    let query = |tokens: Value| json!({"model": "m", "block_size": 4, "token_ids": tokens});
    let refused = |tokens: Value, reason: &str, index: usize| {
        let answered = running.post("/query", &query(tokens)).json();
        assert_eq!(
            (&answered["reason"], &answered["index"]),
            (&json!(reason), &json!(index)),
            "{answered}"
        );
    };
    refused(json!([1, 2.0]), "invalid_type", 1);
    refused(json!([1, 2, "3"]), "invalid_type", 2);
    refused(json!([2_147_483_648_u32]), "out_of_range", 0);
    refused(json!([0, -2_147_483_649_i64, "x"]), "out_of_range", 1);
    let answered = running.post_msgpack(
        "/query",
        b"\x83\xa5model\xa1m\xaablock_size\x04\xa9token_ids\x91\xc3",
    );
    assert_eq!(
        answered.msgpack()["error"],
        "token_ids element must be an integer"
    );
    let answered = running.post_msgpack(
        "/query",
        b"\x83\xa5model\xa1m\xaablock_size\x04\xa9token_ids\xc4\x01\x00",
    );
    assert_eq!(
        answered.msgpack()["error"],
        "token_ids bin size must be a multiple of 4"
    );
    let answered = running.post_msgpack("/query", b"\x83\xa5model\xa1m\xaablock_size\x04\xa9token_ids\xc0");
    assert_eq!(answered.msgpack()["error"], "token_ids must be a bin or an array");
}

#[test]
fn paths_methods_and_long_bodies_are_refused() {
    let running = Running::start();
    let status = |method: &str, path: &str| running.send(method, path, &[], b"{}").status;
    assert_eq!(status("GET", "/v2/query"), 404);
    assert_eq!(status("GET", "/query"), 405);
    assert_eq!(status("POST", "/services"), 405);
    assert_eq!(
        running.get("/query").json(),
        json!({"error": "Method not allowed"})
    );
    let long = running.send("POST", "/query", &[], &vec![b' '; BODY_LIMIT + 1]);
    assert_eq!(
        (long.status, &long.json()["reason"]),
        (413, &json!("body_too_large"))
    );
    let shape = running.post("/query?shape=round", &json!({}));
    assert_eq!((shape.status, &shape.json()["field"]), (400, &json!("shape")));
}

#[test]
fn a_list_of_more_integers_than_bytes_could_carry_is_refused() {
    let running = Running::start();
    let query = |tokens: usize| json!({"model": "llama", "block_size": 4, "token_ids": vec![1; tokens]});
    let most = BODY_LIMIT / 4;
    running.post("/query", &query(most)).ok();
    let error = format!("the lists of the request have more than {most} integers");
    check(&running, "/query", &query(most + 1), "too_long", None, &error);
}

#[test]
fn a_large_query_holds_up_no_other_request() {
    let running = Running::start();
    let large = json!({"model": "llama", "block_size": 4, "token_ids": vec![1; 100_000]});
    std::thread::scope(|scope| {
        let held = running.follower.gate.lock().unwrap();
        let query = scope.spawn(|| running.post("/query", &large).status);
        while running.follower.lookups.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(running.get("/nothing").status, 404);
        drop(held);
        assert_eq!(query.join().unwrap(), 200);
    });
}
