//! JSON and MessagePack bodies and answers.

use serde_json::{Value, json};

use crate::service::{ON_DEVICE, Running};

/// Returns `{"model": "llama", "block_size": 4, "token_ids": ...}` in MessagePack, up to the tokens.
fn msgpack_query() -> Vec<u8> {
    b"\x83\xa5model\xa5llama\xaablock_size\x04\xa9token_ids".to_vec()
}

#[test]
fn tokens_are_taken_as_little_endian_bytes_and_as_an_array() {
    let running = Running::start();
    let worker = running.register("a", json!({}));
    running.store(worker, 0, &[1, 2, 300, 70_000], ON_DEVICE);
    let mut bytes = msgpack_query();
    bytes.extend(b"\xc4\x10");
    for token in [1_i32, 2, 300, 70_000] {
        bytes.extend(token.to_le_bytes());
    }
    let mut array = msgpack_query();
    array.extend(b"\x94\x01\x02\xcd\x01\x2c\xce\x00\x01\x11\x70");
    for body in [bytes, array] {
        let answer = running.post_msgpack("/query", &body);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.msgpack()["instances"]["a"]["longest_matched"], 4);
    }
}

#[test]
fn an_answer_is_in_the_format_accepted_or_else_that_of_the_request() {
    let running = Running::start();
    let body = br#"{"model": "m", "block_size": 4, "token_ids": []}"#;
    let send = |headers: &[(&str, &str)]| running.send("POST", "/query", headers, body);
    let empty = json!({"instances": {}});
    assert_eq!(send(&[]).json(), empty);
    assert_eq!(
        send(&[("content-type", "application/json"), ("accept", "*/*")]).json(),
        empty
    );
    assert_eq!(send(&[("accept", "application/msgpack")]).msgpack(), empty);
    let get = |accept: &str| running.send("GET", "/services", &[("accept", accept)], b"");
    assert_eq!(get("*/*").json()["count"], 0);
    assert_eq!(get("application/x-msgpack").msgpack()["count"], 0);
    assert_eq!(get("application/json, application/msgpack").json()["count"], 0);
}

#[test]
fn bodies_that_are_no_documents_are_refused_by_format() {
    let running = Running::start();
    let check = |kind: &str, body: &[u8], reason: &str, error: &str| {
        let answer = running.send("POST", "/query", &[("content-type", kind)], body);
        let answered: Value = if kind.contains("msgpack") {
            answer.msgpack()
        } else {
            answer.json()
        };
        assert_eq!(
            (answer.status, &answered["reason"], &answered["error"]),
            (400, &json!(reason), &json!(error))
        );
    };
    check(
        "text/plain",
        b"{}",
        "unsupported_content_type",
        "Content-Type must be application/msgpack or application/json",
    );
    check("application/json", b"{,}", "invalid_json", "Invalid JSON object");
    check(
        "application/json",
        b"[]",
        "invalid_json",
        "request body must be a JSON object",
    );
    check(
        "application/msgpack",
        b"\x81",
        "invalid_msgpack",
        "Invalid msgpack object",
    );
    check(
        "application/msgpack",
        b"\x90",
        "invalid_msgpack",
        "request body must be a msgpack map",
    );
    check(
        "application/msgpack; v=1",
        b"\x81\x01\x02",
        "invalid_msgpack",
        "map keys must be strings",
    );
}

#[test]
fn of_a_repeated_key_a_query_takes_the_last_and_a_registration_the_first() {
    let running = Running::start();
    running.send(
        "POST",
        "/register",
        &[("content-type", "application/json")],
        br#"{"endpoint": "tcp://a:1", "endpoint": 7, "type": "vLLM", "modelname": "m", "instance_id": "a", "block_size": 4,
            "dp_rank": 0}"#,
    )
    .ok();
    let body = br#"{"model": "x", "model": "m", "block_size": 4, "token_ids": []}"#;
    let answer = running.send("POST", "/query", &[], body).ok();
    assert_eq!(answer["instances"]["a"]["longest_matched"], 0);
    // Each occurrence is validated, though.
    let body = br#"{"model": 1, "model": "m", "block_size": 4, "token_ids": []}"#;
    assert_eq!(
        running.send("POST", "/query", &[], body).json()["reason"],
        "invalid_type"
    );
}
