//! Queries by tokens and by both kinds of hashes.

use block_hash::{Algorithm, RFC_1527_SEED, VllmHasher, sequence_hashes};
use indexer_api::FollowedSource;
use routing::{EngineBlockHash, ObjectEvent, Shard, StoreObject, Tier, WorkerId};
use serde_json::{Value, json};

use crate::service::{ON_DEVICE, Running, Stored, own_worker};

fn query(tokens: &[u32], changes: Value) -> Value {
    let mut body = json!({"model": "llama", "block_size": 4, "token_ids": tokens});
    for (key, value) in changes.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn prompt() -> Vec<u32> {
    (1..=17).collect()
}

#[test]
fn each_rank_of_each_instance_is_answered_in_tokens_by_tier() {
    let running = Running::start();
    let tokens = prompt();
    let [first, second] = [0, 1].map(|rank| {
        running.register(
            "a",
            json!({"dp_rank": rank, "endpoint": format!("tcp://a:{}", 5557 + rank)}),
        )
    });
    running.register("b", json!({}));
    running.store(first, 0, &tokens[..4], ON_DEVICE);
    running.store(second, 1, &tokens[..8], ON_DEVICE);
    let on_host = Stored {
        tier: Tier::Host,
        ..ON_DEVICE
    };
    running.store(second, 1, &tokens[..16], on_host);
    let expected = json!({"instances": {
        "a": {
            "longest_matched": 16, "dp": {"0": 4, "1": 8}, "gpu": 8, "cpu": 16, "disk": 16,
            "rank_matches": {"0": {"gpu": 4, "cpu": 4, "disk": 4}, "1": {"gpu": 8, "cpu": 16, "disk": 16}},
        },
        "b": {
            "longest_matched": 0, "dp": {"0": 0}, "gpu": 0, "cpu": 0, "disk": 0,
            "rank_matches": {"0": {"gpu": 0, "cpu": 0, "disk": 0}},
        },
    }});
    assert_eq!(running.post("/query", &query(&tokens, json!({}))).ok(), expected);
    let only = running
        .post("/query", &query(&tokens, json!({"instance_id": "b"})))
        .ok();
    assert_eq!(only["instances"].as_object().unwrap().len(), 1);
    for empty in ["", "c"] {
        let none = running
            .post("/query", &query(&tokens, json!({"instance_id": empty})))
            .ok();
        assert_eq!(none, json!({"instances": {}}));
    }
}

#[test]
fn the_shape_of_the_documentation_is_given_on_request() {
    let running = Running::start();
    let worker = running.register("a", json!({}));
    running.store(worker, 0, &[1, 2, 3, 4], ON_DEVICE);
    let answer = running
        .post("/query?shape=tenant", &query(&[1, 2, 3, 4], json!({})))
        .ok();
    assert_eq!(
        answer,
        json!({"default": {"a": {"longest_matched": 4, "DP": {"0": 4}, "GPU": 4, "CPU": 4, "DISK": 4}}})
    );
    let unknown = query(&[1], json!({"tenant_id": "nobody"}));
    assert_eq!(running.post("/query?shape=tenant", &unknown).ok(), json!({}));
}

#[test]
fn tenants_models_and_block_sizes_are_kept_apart() {
    let running = Running::start();
    let worker = running.register("a", json!({"tenant_id": "blue"}));
    running.store(worker, 0, &[1, 2, 3, 4], ON_DEVICE);
    let found = |changes: Value| {
        let answer = running.post("/query", &query(&[1, 2, 3, 4], changes)).ok();
        answer["instances"].as_object().unwrap().len()
    };
    assert_eq!(found(json!({"tenant_id": "blue"})), 1);
    assert_eq!(found(json!({})), 0);
    assert_eq!(found(json!({"tenant_id": "blue", "model": "other"})), 0);
    assert_eq!(found(json!({"tenant_id": "blue", "block_size": 8})), 0);
}

#[test]
fn an_engine_of_the_base_model_appears_for_an_adapter_where_it_holds_something() {
    let running = Running::start();
    let base = running.register("base", json!({}));
    let own = running.register("own", json!({"lora_name": "ad"}));
    let adapter = Stored {
        lora: Some("ad"),
        ..ON_DEVICE
    };
    let tokens = [1, 2, 3, 4];
    let found = || {
        let answer = running
            .post("/query", &query(&tokens, json!({"lora_name": "ad"})))
            .ok();
        let instances = answer["instances"].as_object().unwrap().clone();
        instances
            .into_iter()
            .map(|(name, found)| (name, found["gpu"].as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    running.store(base, 0, &tokens, ON_DEVICE);
    assert_eq!(found(), [("own".to_owned(), 0)]);
    let elsewhere = Stored {
        first_hash: 2_000,
        ..adapter
    };
    running.store(base, 0, &tokens, elsewhere);
    running.store(own, 0, &tokens, adapter);
    assert_eq!(found(), [("base".to_owned(), 4), ("own".to_owned(), 4)]);
}

#[test]
fn the_routers_workers_answer_for_the_models_they_serve() {
    let running = Running::start_with(None, vec![own_worker()]);
    running.store(WorkerId(9), 0, &[1, 2, 3, 4], ON_DEVICE);
    let found = |changes: Value| running.post("/query", &query(&[1, 2, 3, 4], changes)).ok();
    assert_eq!(found(json!({}))["instances"]["gpu-9"]["longest_matched"], 4);
    // Events define their block size, whatever the query names.
    assert_eq!(
        found(json!({"block_size": 64}))["instances"]["gpu-9"]["longest_matched"],
        4
    );
    assert_eq!(found(json!({"model": "other"})), json!({"instances": {}}));
    assert_eq!(found(json!({"tenant_id": "blue"})), json!({"instances": {}}));
}

#[test]
fn blocks_of_a_store_count_for_the_engines_of_its_model() {
    let running = Running::start();
    let FollowedSource::Store(store) = running.register_any("store", json!({"type": "Mooncake"})) else {
        panic!("an engine was registered")
    };
    let writer = running.register("a", json!({}));
    let reader = running.register("b", json!({}));
    let other = running.register("c", json!({"modelname": "other"}));
    let tokens = prompt();
    running.store(writer, 0, &tokens[..8], ON_DEVICE);
    // An engine is known only by its events.
    for engine in [reader, other] {
        running.store(engine, 0, &[9; 4], ON_DEVICE);
    }
    let stored = |hash| ObjectEvent::Stored {
        object: StoreObject {
            model: "llama".into(),
            block: EngineBlockHash(hash),
            shard: Shard::default(),
        },
        tier: Tier::Host,
    };
    running.index.apply_objects(
        store,
        &[stored(ON_DEVICE.first_hash), stored(ON_DEVICE.first_hash + 1)],
    );
    let found = |model: &str| {
        running
            .post("/query", &query(&tokens, json!({"model": model})))
            .ok()
    };
    let instances = found("llama")["instances"].clone();
    assert_eq!(
        instances.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert_eq!(
        (&instances["b"]["gpu"], &instances["b"]["longest_matched"]),
        (&json!(0), &json!(8))
    );
    assert_eq!(found("other")["instances"]["c"]["longest_matched"], 0);
}

#[test]
fn rolling_hashes_and_tokens_find_the_same_blocks() {
    let running = Running::start();
    let worker = running.register("a", json!({}));
    let tokens = prompt();
    running.store(worker, 0, &tokens[..12], ON_DEVICE);
    let hashes = sequence_hashes(&tokens, 4, RFC_1527_SEED);
    for name in ["seq_hashes", "block_hash", "block_hashes"] {
        let answer = running
            .post(
                "/query_by_hash",
                &json!({"model": "llama", "block_size": 4, name: hashes}),
            )
            .ok();
        assert_eq!(answer["instances"]["a"]["longest_matched"], 12, "{name}");
    }
    // Some clients send them signed.
    let signed: Vec<i64> = hashes.iter().map(|hash| *hash as i64).collect();
    let body = json!({"model": "llama", "block_size": 4, "seq_hashes": signed});
    assert_eq!(
        running.post("/query_by_hash", &body).ok()["instances"]["a"]["longest_matched"],
        12
    );
    let body = json!({"model": "llama", "block_size": 4, "seq_hashes": hashes, "cache_salt": "s"});
    assert_eq!(
        running.post("/query_by_hash", &body).json()["reason"],
        "unsupported"
    );
}

#[test]
fn engine_hashes_are_looked_up_where_the_engine_registered_with_its_profile() {
    let running = Running::start();
    let profile = json!({"hash_profile": {
        "strategy": "vllm_v1", "algorithm": "sha256_cbor", "python_hash_seed": "0", "index_projection": "low64_be",
    }});
    let worker = running.register("a", profile);
    let tokens = prompt();
    let mut hasher = VllmHasher::new(Algorithm::Sha256Cbor, "0");
    let mut parent = hasher.root();
    let mut hashes = Vec::new();
    for block in tokens.chunks_exact(4) {
        parent = hasher.block(&parent, block, &[]);
        hashes.push(parent.low64());
    }
    for (number, block) in tokens.chunks_exact(4).enumerate().take(2) {
        let stored = routing::StoredBlocks {
            hashes: vec![EngineBlockHash(hashes[number])],
            parent: number
                .checked_sub(1)
                .map(|before| EngineBlockHash(hashes[before])),
            tokens: block.to_vec(),
            block_size: 4,
            tier: Tier::Device,
            lora: None,
            extra_keys: Vec::new(),
            group: 0,
            attention: routing::Attention::Full,
        };
        let holder = kv_index::Holder {
            worker,
            rank: routing::DpRank(0),
        };
        running.index.apply(holder, &routing::BlockEvent::Stored(stored));
    }
    let found = |changes: Value| {
        let mut body = json!({"model": "llama", "block_size": 4, "seq_hashes": hashes});
        for (key, value) in changes.as_object().unwrap() {
            body[key] = value.clone();
        }
        running.post("/query_by_hash", &body).ok()["instances"]["a"]["longest_matched"].clone()
    };
    assert_eq!(found(json!({})), 8);
    assert_eq!(found(json!({"hash_kind": "engine"})), 8);
    assert_eq!(found(json!({"hash_kind": "rolling"})), 0);
}

#[test]
fn hashes_of_either_engine_find_both_holders_of_the_same_tokens() {
    let running = Running::start();
    let tokens = prompt();
    for (name, first_hash) in [("a", 1_000), ("b", 2_000)] {
        let engine = running.register(name, json!({}));
        let stored = Stored {
            first_hash,
            ..ON_DEVICE
        };
        running.store(engine, 0, &tokens[..12], stored);
    }
    for first_hash in [1_000, 2_000] {
        let found = |changes: Value| {
            let mut body = json!({
                "model": "llama", "block_size": 4, "seq_hashes": [first_hash, first_hash + 1, first_hash + 2, 7],
                "hash_kind": "engine",
            });
            for (key, value) in changes.as_object().unwrap() {
                body[key] = value.clone();
            }
            running.post("/query_by_hash", &body).ok()["instances"].clone()
        };
        let both = found(json!({}));
        for name in ["a", "b"] {
            assert_eq!(both[name]["longest_matched"], 12, "{name} by {first_hash}");
            let one = found(json!({"instance_id": name}));
            assert_eq!(one[name]["longest_matched"], 12, "{name} alone by {first_hash}");
        }
    }
}

#[test]
fn missing_hashes_and_unknown_kinds_are_refused() {
    let running = Running::start();
    let answered = |body: Value| running.post("/query_by_hash", &body).json();
    assert_eq!(
        answered(json!({"model": "m", "block_size": 4}))["field"],
        "seq_hashes"
    );
    assert_eq!(answered(json!({"hash_kind": "x"}))["reason"], "invalid_value");
    assert_eq!(answered(json!({"seq_hashes": [1, "x"]}))["index"], 1);
}
