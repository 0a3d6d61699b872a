//! Real engines as witnesses: every block that a captured vLLM 0.32 stored is hashed again, and must have the name that
//! the engine gave it. Needs the captures of `/work/shared` beside the project; skipped where they are not.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::HashMap;

use block_hash::{Algorithm, Digest, ExtraKey, VllmHasher};
use serde_json::Value;

const LORAS: [(&str, &str); 2] = [("ad1", "/tmp/tiny-lora"), ("ad2", "/tmp/tiny-lora2")];

/// Returns a block's name as its events have it: a number, or the whole digest in hexadecimal.
fn name(hash: &Value) -> String {
    hash["$bin"]
        .as_str()
        .map_or_else(|| hash.to_string(), str::to_owned)
}

fn named(digest: &Digest, like: &Value) -> String {
    if like.is_u64() {
        digest.low64().to_string()
    } else {
        digest.to_string()
    }
}

/// Returns the keys as the engine hashed them. Events have bare keys; the engine hashed tagged ones: the adapter's
/// first, then a salt.
fn keys<'v>(published: &'v Value, lora: Option<&'v str>) -> Vec<ExtraKey<'v>> {
    let texts = published
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let mut lora = lora;
    texts
        .map(|text| match lora.take_if(|name| *name == text) {
            Some(name) => {
                let path = LORAS.iter().find(|(known, _)| *known == name).unwrap().1;
                ExtraKey::Lora { name, path }
            }
            None => ExtraKey::CacheSalt(text),
        })
        .collect()
}

fn check(file: &str, algorithm: Algorithm, seed: &str) {
    let path = format!(
        "{}/../../../shared/data/captures/{file}.events.jsonl",
        env!("CARGO_MANIFEST_DIR")
    );
    let Ok(text) = std::fs::read_to_string(&path) else {
        return eprintln!("skipped: `{path}` is not there");
    };
    let mut hasher = VllmHasher::new(algorithm, seed);
    let mut known: HashMap<String, Digest> = HashMap::new();
    let mut checked = 0;
    for line in text.lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        let events = message["decoded"]["batch"][1]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for event in events.iter().filter(|event| event["type"] == "BlockStored") {
            let mut parent = match &event["parent_block_hash"] {
                Value::Null => hasher.root(),
                parent => known[&name(parent)],
            };
            let tokens: Vec<u32> = serde_json::from_value(event["token_ids"].clone()).unwrap();
            let size = event["block_size"].as_u64().unwrap() as usize;
            let hashes = event["block_hashes"].as_array().unwrap();
            for (number, (block, hash)) in tokens.chunks_exact(size).zip(hashes).enumerate() {
                let keys = keys(&event["extra_keys"][number], event["lora_name"].as_str());
                parent = hasher.block(&parent, block, &keys);
                assert_eq!(named(&parent, hash), name(hash), "{file}: {keys:?}");
                known.insert(name(hash), parent);
                checked += 1;
            }
        }
    }
    assert!(checked > 0, "{file} has no blocks");
    println!("{file}: {checked} blocks");
}

#[test]
fn captured_vllm_blocks_are_named_as_the_engine_named_them() {
    check("vllm-sha256-int", Algorithm::Sha256, "0");
    check("vllm-sha256_cbor-bytes-lora", Algorithm::Sha256Cbor, "0");
}
