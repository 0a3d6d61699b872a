//! Engines whose feeds are not live are left out of answers, and each answer reports this.

use routing::WorkerId;
use serde_json::{Value, json};

use crate::service::{ON_DEVICE, Running, own_worker, own_worker_of};

const TOKENS: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

fn query() -> Value {
    json!({"model": "llama", "block_size": 4, "token_ids": TOKENS})
}

/// Starts two engines that hold the prompt; the feed of the first is lost.
fn one_of_two_lost() -> Running {
    let running = Running::start();
    let [lost, live] = ["a", "b"].map(|name| running.register(name, json!({})));
    for engine in [lost, live] {
        running.store(engine, 0, &TOKENS, ON_DEVICE);
    }
    running.lose(lost);
    running
}

fn held(tokens: u32) -> Value {
    json!({
        "longest_matched": tokens, "dp": {"0": tokens}, "gpu": tokens, "cpu": tokens, "disk": tokens,
        "rank_matches": {"0": {"gpu": tokens, "cpu": tokens, "disk": tokens}},
    })
}

#[test]
fn an_engine_whose_feed_is_lost_is_left_out_and_named() {
    let running = one_of_two_lost();
    let expected = json!({"instances": {"b": held(8)}, "not_current": {"a": [0]}});
    let answer = running.post("/query", &query());
    assert!(
        answer.head.contains("x-conductor-not-current: 1\r\n"),
        "{}",
        answer.head
    );
    assert_eq!(answer.ok(), expected);
    let packed = rmp_serde::to_vec_named(&query()).unwrap();
    assert_eq!(running.post_msgpack("/query", &packed).msgpack(), expected);
    let hashes = json!({
        "model": "llama", "block_size": 4, "hash_kind": "engine",
        "seq_hashes": [ON_DEVICE.first_hash, ON_DEVICE.first_hash + 1],
    });
    assert_eq!(running.post("/query_by_hash", &hashes).ok(), expected);
    let only = json!({"model": "llama", "block_size": 4, "token_ids": TOKENS, "instance_id": "b"});
    let answer = running.post("/query", &only);
    assert!(
        !answer.head.contains("x-conductor-not-current"),
        "{}",
        answer.head
    );
    assert_eq!(answer.ok(), json!({"instances": {"b": held(8)}}));
}

#[test]
fn shapes_without_a_place_for_it_carry_the_number_in_a_header() {
    let running = one_of_two_lost();
    let answer = running.post("/query?shape=tenant", &query());
    assert!(
        answer.head.contains("x-conductor-not-current: 1\r\n"),
        "{}",
        answer.head
    );
    assert_eq!(
        answer.ok(),
        json!({"default": {"b": {"longest_matched": 8, "DP": {"0": 8}, "GPU": 8, "CPU": 8, "DISK": 8}}})
    );
    let cache = json!({
        "instances": ["a", "b"], "token_ids": TOKENS, "model_name": "llama", "lora_id": -1,
    });
    let answer = running.post("/cache", &cache);
    assert!(
        answer.head.contains("x-conductor-not-current: 1\r\n"),
        "{}",
        answer.head
    );
    assert_eq!(answer.ok()["matched_engines"], json!({"b": 100}));
}

#[test]
fn a_lost_rank_is_left_out_of_its_instance() {
    let running = Running::start();
    let [live, lost] = [0, 1].map(|rank| {
        let endpoint = format!("tcp://a:{}", 5557 + rank);
        running.register("a", json!({"dp_rank": rank, "endpoint": endpoint}))
    });
    running.store(live, 0, &TOKENS[..4], ON_DEVICE);
    running.store(lost, 1, &TOKENS, ON_DEVICE);
    running.lose(lost);
    assert_eq!(
        running.post("/query", &query()).ok(),
        json!({"instances": {"a": held(4)}, "not_current": {"a": [1]}})
    );
}

#[test]
fn the_routers_workers_are_left_out_with_all_their_ranks() {
    let running = Running::start_with(None, vec![own_worker_of(&[0, 1])]);
    running.store(WorkerId(9), 0, &TOKENS, ON_DEVICE);
    running.lose(WorkerId(9));
    assert_eq!(
        running.post("/query", &query()).ok(),
        json!({"instances": {}, "not_current": {"gpu-9": [0, 1]}})
    );
    let cache = json!({
        "instances": ["gpu-9"], "token_ids": TOKENS, "model_name": "llama", "lora_id": -1,
    });
    assert_eq!(running.post("/cache", &cache).ok()["best_prefiller"], Value::Null);
}

#[test]
fn an_engine_of_the_base_model_that_is_lost_may_hold_an_adapters_blocks() {
    let running = Running::start();
    let base = running.register("base", json!({}));
    running.lose(base);
    let body = json!({"model": "llama", "block_size": 4, "token_ids": TOKENS, "lora_name": "ad"});
    assert_eq!(
        running.post("/query", &body).ok(),
        json!({"instances": {}, "not_current": {"base": [0]}})
    );
}

#[test]
fn a_worker_is_listed_with_the_ranks_of_its_feeds_before_its_first_event() {
    let ranks = |worker| {
        let running = Running::start_with(None, vec![worker]);
        let answer = running.post("/query", &query()).ok();
        let ranks = answer["instances"]["gpu-9"]["dp"].as_object().unwrap().clone();
        ranks.into_iter().map(|(rank, _)| rank).collect::<Vec<_>>()
    };
    assert_eq!(ranks(own_worker()), ["0"]);
    assert_eq!(ranks(own_worker_of(&[0, 1])), ["0", "1"], "dp-size = 2");
    assert_eq!(
        ranks(own_worker_of(&[1])),
        ["1"],
        "the second rank of data-parallel"
    );
}
