//! Vectors of others, where the shared data is there: vLLM's own hashes and the first conductors'. Skipped where it is
//! not.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use block_hash::{Algorithm, ExtraKey, LegacyChain, VllmHasher};
use serde_json::Value;

fn fixture(name: &str) -> Option<Value> {
    let path = format!(
        "{}/../../../shared/data/fixtures/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        eprintln!("skipped: `{path}` is not there");
    }
    text.map(|text| serde_json::from_str(&text).unwrap())
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn token(value: &Value) -> u32 {
    value.as_i64().unwrap() as i32 as u32
}

fn tokens(case: &Value) -> Vec<u32> {
    match &case["token_ids_repeat"] {
        Value::Null => case["token_ids"].as_array().unwrap().iter().map(token).collect(),
        repeat => vec![token(&repeat["value"]); repeat["count"].as_u64().unwrap() as usize],
    }
}

fn adapter(case: &Value) -> String {
    match &case["lora_name_repeat"] {
        Value::Null => text(case, "lora_name").to_owned(),
        repeat => text(repeat, "value").repeat(repeat["count"].as_u64().unwrap() as usize),
    }
}

fn check_golden(name: &str, algorithm: Algorithm) {
    let Some(vectors) = fixture(name) else { return };
    for vector in vectors["seed_root_vectors"].as_array().unwrap() {
        let root = VllmHasher::new(algorithm, text(vector, "python_hash_seed")).root();
        assert_eq!(root.to_string(), text(vector, "root_digest"));
    }
    let mut hasher = VllmHasher::new(algorithm, text(&vectors["profile"], "python_hash_seed"));
    assert_eq!(
        hasher.root().to_string(),
        text(&vectors["profile"], "root_digest")
    );
    for case in vectors["cases"].as_array().unwrap() {
        let (tokens, lora, salt) = (tokens(case), adapter(case), text(case, "cache_salt"));
        let block_size = case["block_size"].as_u64().unwrap() as usize;
        let expected = case["expected"].as_array().unwrap();
        let mut parent = hasher.root();
        assert_eq!(tokens.len() / block_size, expected.len(), "{}", case["name"]);
        for (number, (block, expected)) in tokens.chunks_exact(block_size).zip(expected).enumerate() {
            let salt = if number == 0 { salt } else { "" };
            let keys = [lora.as_str(), salt]
                .into_iter()
                .filter(|key| !key.is_empty())
                .map(ExtraKey::Text);
            parent = hasher.block(&parent, block, &keys.collect::<Vec<_>>());
            assert_eq!(parent.to_string(), text(expected, "digest"), "{}", case["name"]);
            assert_eq!(
                parent.low64().to_string(),
                text(expected, "projected_decimal"),
                "{}",
                case["name"]
            );
        }
    }
}

#[test]
fn blocks_hash_as_sha256_cbor_of_vllm_0_22() {
    check_golden("hash_golden_vectors.json", Algorithm::Sha256Cbor);
}

#[test]
fn blocks_hash_as_sha256_of_vllm_0_22() {
    check_golden("hash_golden_vectors_sha256.json", Algorithm::Sha256);
}

/// Returns an extra key of `["cache_salt", ...]` and the like, or of bare text.
fn extra_key(key: &Value) -> ExtraKey<'_> {
    let Some(parts) = key.as_array() else {
        return ExtraKey::Text(key.as_str().unwrap());
    };
    let part = |place: usize| parts[place].as_str().unwrap();
    match part(0) {
        "lora" => ExtraKey::Lora {
            name: part(1),
            path: part(2),
        },
        "mm" => ExtraKey::Multimodal {
            identifier: part(1),
            offset: parts[2].as_i64().unwrap(),
        },
        "cache_salt" => ExtraKey::CacheSalt(part(1)),
        tag => panic!("`{tag}` is no tag of these vectors"),
    }
}

#[test]
fn blocks_hash_as_all_algorithms_of_vllm_0_32_with_tagged_keys() {
    let Some(vectors) = fixture("vllm_0_32_hash_vectors.json") else {
        return;
    };
    let none_hash = vectors["none_hash"].as_object().unwrap();
    assert_eq!(none_hash.len(), Algorithm::ALL.len());
    for (algorithm, seeds) in none_hash {
        for (seed, root) in seeds.as_object().unwrap() {
            let hasher = VllmHasher::new(Algorithm::named(algorithm).unwrap(), seed);
            assert_eq!(hasher.root().to_string(), root.as_str().unwrap());
        }
    }
    let tokens = tokens(&vectors);
    let block_size = vectors["block_size"].as_u64().unwrap() as usize;
    for case in vectors["cases"].as_array().unwrap() {
        let algorithm = Algorithm::named(text(case, "algorithm")).unwrap();
        let mut hasher = VllmHasher::new(algorithm, text(case, "seed"));
        let mut parent = hasher.root();
        let blocks = case["blocks"].as_array().unwrap();
        assert_eq!(blocks.len(), tokens.len() / block_size);
        for (block, expected) in tokens.chunks_exact(block_size).zip(blocks) {
            let keys = expected["extra_keys"].as_array().into_iter().flatten();
            parent = hasher.block(&parent, block, &keys.map(extra_key).collect::<Vec<_>>());
            let name = (&case["name"], algorithm);
            assert_eq!(parent.to_string(), text(expected, "digest"), "{name:?}");
            assert_eq!(parent.low64().to_string(), text(expected, "ext"), "{name:?}");
        }
    }
}

#[test]
fn legacy_chains_hash_as_the_first_conductors() {
    let Some(vectors) = fixture("legacy_xxh64_hash_golden_vectors.json") else {
        return;
    };
    let number = |value: &Value, key: &str| text(value, key).parse::<u64>().unwrap();
    for case in vectors["compute_hash_cases"].as_array().unwrap() {
        let parent = number(case, "parent_hash");
        let hash = LegacyChain::salted("").block(parent, &tokens(case));
        assert_eq!(hash, number(case, "expected"), "{}", case["name"]);
    }
    for case in vectors["prefix_chain_cases"].as_array().unwrap() {
        let chain = LegacyChain::salted(text(case, "additional_salt"));
        let hashes = chain.hashes(&tokens(case), case["block_size"].as_u64().unwrap() as usize);
        let expected = case["expected_chain"].as_array().unwrap();
        let expected: Vec<u64> = expected
            .iter()
            .map(|hash| hash.as_str().unwrap().parse().unwrap())
            .collect();
        assert_eq!(hashes, expected, "{}", case["name"]);
    }
}

#[test]
fn salts_hash_as_the_first_conductors() {
    let Some(vectors) = fixture("legacy_xxh64_seed_golden_vectors.json") else {
        return;
    };
    for case in vectors["cases"].as_array().unwrap() {
        let root = LegacyChain::salted(text(case, "input")).root();
        assert_eq!(root.to_string(), text(case, "expected"));
    }
}
