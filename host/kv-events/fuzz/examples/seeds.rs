//! Writes the bytes that fuzzing starts from: one of every form the tests know, made by their own writer, and what
//! vLLM's cache manager announced (`tests/recorded`).

use std::fs;
use std::path::Path;

#[path = "../../tests/it/encode.rs"]
#[expect(dead_code, reason = "the tests write more forms")]
mod encode;

use encode::{Value, array, bin, encode, ints, map, nil, text};

const RECORDED: &str = include_str!("../../tests/recorded/vllm_hybrid.jsonl");
const DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn main() -> std::io::Result<()> {
    let (engine, store, keys) = (engine_payloads(), store_payloads(), keys());
    let messages = engine.iter().flat_map(|payload| messages(payload)).collect();
    write("decode_batch", engine)?;
    write("decode_objects", store)?;
    write("frames", messages)?;
    write("object_key", keys.into_iter().map(String::into_bytes).collect())
}

fn write(target: &str, seeds: Vec<Vec<u8>>) -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&folder)?;
    println!("{}: {} seeds", folder.display(), seeds.len());
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(folder.join(format!("seed-{number:02}")), seed)?;
    }
    Ok(())
}

/// Returns a batch of these events in every envelope.
fn envelopes(events: &Value) -> Vec<Vec<u8>> {
    let ts = || Value::Float(1.5);
    let parts = [
        ("ts", ts()),
        ("events", events.clone()),
        ("data_parallel_rank", nil()),
    ];
    let forms = [
        array([ts(), events.clone()]),
        array([Value::Uint(1_700_000_000_123), events.clone(), Value::Int(1)]),
        array([nil(), events.clone(), nil(), text("later")]),
        map(parts),
    ];
    forms.iter().map(encode).collect()
}

fn engine_payloads() -> Vec<Vec<u8>> {
    let fields = [
        ("type", text("BlockStored")),
        ("block_hashes", array([Value::Int(-5), bin(&[7; 32])])),
        ("parent_block_hash", Value::Uint(u64::MAX)),
        ("token_ids", ints(&[1, 300, 70_000, 4])),
        ("block_size", Value::Int(2)),
        ("lora_id", Value::Int(1)),
        ("medium", text("CPU_PINNED")),
        ("lora_name", text("ad")),
        (
            "extra_keys",
            array([array([text("ad"), array([text("image"), Value::Int(-4)])]), nil()]),
        ),
        ("group_idx", Value::Int(1)),
        ("kv_cache_spec_kind", text("sliding_window")),
        ("kv_cache_spec_sliding_window", Value::Int(128)),
        ("cache_salt", text("s")),
    ];
    let mut payloads = Vec::new();
    // The later fields and a salt are known by name only.
    for count in 5..fields.len() {
        let event = array(fields[..count].iter().map(|(_, value)| value.clone()));
        payloads.push(encode(&array([nil(), array([event])])));
    }
    let removed = array([text("BlockRemoved"), ints(&[1, -2]), text("GPU"), Value::Int(0)]);
    let cleared = map([("type", text("AllBlocksCleared"))]);
    let pairs = map([
        ("type", text("BlockStored")),
        ("block_hashes", ints(&[1])),
        ("token_ids", array([ints(&[1, 2])])),
    ]);
    payloads.extend(envelopes(&array([map(fields), removed, cleared, pairs])));
    let recorded = RECORDED.split('"').filter(|part| part.len() > 64);
    payloads.extend(recorded.map(unhex));
    payloads
}

fn store_payloads() -> Vec<Vec<u8>> {
    let released = map([
        ("event_id", Value::Int(7)),
        ("event_type", text("stored")),
        ("type", text("BlockStored")),
        ("model_name", nil()),
        ("group_id", nil()),
        ("medium", text("cpu")),
        ("object_key", text(&keys()[0])),
        ("seq_hashes", array([])),
        ("block_hashes", array([])),
    ]);
    let earlier = map([
        ("event_type", text("removed")),
        ("model_name", text("m")),
        ("group_id", text("0")),
        ("medium", text("disk")),
        ("connector_block_hash", text(DIGEST)),
        ("cache_prefix", text("dep")),
        ("tp_rank", Value::Int(0)),
        ("head_or_tp_rank", nil()),
        ("pcp_rank", Value::Int(0)),
        ("dcp_rank", Value::Int(0)),
        ("pp_rank", Value::Int(0)),
        ("layer_id", nil()),
        ("seq_hashes", ints(&[1, -2])),
    ]);
    let bare = map([
        ("event_type", text("stored")),
        ("medium", text("cpu")),
        ("seq_hashes", ints(&[5])),
    ]);
    let cleared = map([("event_type", text("cleared")), ("medium", nil())]);
    envelopes(&array([released, earlier, bare, cleared]))
}

fn keys() -> Vec<String> {
    let mut keys: Vec<String> = [
        "dep@m@tp_rank:1@pcp0@dcp0@pp_rank:2@group:3@HASH",
        "m@store_tp:4@store_pp:1@store_format:x@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@HASH",
        "m@pcp0@dcp0@head_or_tp_rank:5@pp_rank:0@HASH",
        "m@pcp0@dcp0@head_or_tp_rank:5@HASH@31",
        "m@pcp:0@dcp:0@head_or_tp_rank:5@group:0@cache_role:kv@cache_family:c4@layer_id:31@HASH",
        "HASH_0_k",
        "org-m_HASH_7_1_v",
        "HASH__k",
        "HASH_0_draft_k",
        "18446744073709551615",
        "0xdeadbeefcafef00d",
    ]
    .map(str::to_owned)
    .into();
    keys.iter_mut().for_each(|key| *key = key.replace("HASH", DIGEST));
    keys
}

/// Returns the payload as a live message and as both forms of a replay's part, each frame after its length.
fn messages(payload: &[u8]) -> Vec<Vec<u8>> {
    let payload = &payload[..payload.len().min(200)];
    let (seven, end) = (7_u64.to_be_bytes(), u64::MAX.to_be_bytes());
    let forms: [&[&[u8]]; 4] = [
        &[b"kv", &seven, payload],
        &[b"", &seven, payload],
        &[b"", b"kv", &seven, payload],
        &[b"", b"", &end, b""],
    ];
    let framed = forms.map(|frames| {
        let framed = frames.iter().flat_map(|frame| {
            let length = u8::try_from(frame.len()).unwrap_or(u8::MAX);
            std::iter::once(length).chain(frame.iter().copied())
        });
        framed.collect()
    });
    framed.into()
}

fn unhex(hex: &str) -> Vec<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or_default() as u8;
    hex.as_bytes()
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, half| (byte << 4) | digit(half)))
        .collect()
}
