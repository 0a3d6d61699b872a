//! No bytes make the decoder panic, and decoded events are never larger than their bytes could encode.

use kv_events::{decode_batch, decode_objects};
use proptest::collection::vec;
use proptest::prelude::*;
use routing::{BlockEvent, EngineBlockHash, StoredBlocks};

use crate::encode::{Value, array, bin, encode, ints, map, nil, text};
use crate::{claims, event};

fn valid_payload() -> Vec<u8> {
    let stored = map([
        ("type", text("BlockStored")),
        ("block_hashes", array([bin(&[1; 32]), Value::Uint(u64::MAX)])),
        ("parent_block_hash", Value::Int(-7)),
        ("token_ids", ints(&[1, 300, 70_000, 4])),
        ("block_size", Value::Int(2)),
        ("medium", text("GPU")),
        (
            "extra_keys",
            array([array([text("ad"), array([text("image"), Value::Int(1)])]), nil()]),
        ),
        ("unknown", map([("nested", array([map([("deep", nil())])]))])),
    ]);
    let removed = array([text("BlockRemoved"), ints(&[1, 2, 3]), text("CPU"), Value::Int(0)]);
    encode(&array([
        Value::Float(1.5),
        array([stored, removed]),
        Value::Int(1),
    ]))
}

/// Markers that open containers and long values, mixed with any byte: plain noise rarely nests.
fn wire_like() -> impl Strategy<Value = Vec<u8>> {
    let marker = prop_oneof![0x80_u8..=0x9f, 0xc0_u8..=0xdf, Just(0xab), any::<u8>()];
    vec(marker, 0..256)
}

#[test]
fn truncations_of_a_valid_payload_are_refused_without_panic() {
    let payload = valid_payload();
    assert_eq!(decode_batch(&payload).unwrap().events.len(), 2);
    for length in 0..payload.len() {
        assert!(
            decode_batch(&payload[..length]).is_err(),
            "the first {length} bytes are no whole batch"
        );
    }
}

#[test]
fn deep_nesting_costs_no_stack() {
    let mut payload = vec![0x92, 0xc0, 0x91];
    payload.extend(std::iter::repeat_n(0x91, 1 << 20));
    payload.push(0xc0);
    let batch = decode_batch(&payload).unwrap();
    assert_eq!((batch.events.len(), batch.rejected.total()), (0, 1));
}

/// Returns a store's payload of both publishers' forms.
fn valid_objects() -> Vec<u8> {
    let digest = "ab".repeat(32);
    let stored = map([
        ("event_type", text("stored")),
        (
            "object_key",
            text(&format!("m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:1@{digest}")),
        ),
        ("seq_hashes", array([])),
        ("medium", text("cpu")),
    ]);
    let removed = map([
        ("type", text("BlockRemoved")),
        ("seq_hashes", array([Value::Uint(u64::MAX)])),
        ("connector_block_hash", text(&digest)),
        ("tp_rank", Value::Int(3)),
        ("medium", nil()),
    ]);
    encode(&array([
        Value::Uint(1_700_000_000_123),
        array([stored, removed]),
        nil(),
    ]))
}

fn key_like() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[a-z]{0,3}",
        "(tp_rank|head_or_tp_rank|pp_rank|group|layer_id):[0-9]{0,6}",
        "[pd]cp:?[0-9]{1,2}",
        "cache_(role|family):(kv|state|c4)",
        "[0-9a-f]{64}",
        "[0-9a-fA-F]{16}",
        "(0x)?[0-9]{1,20}",
        "k|v",
    ];
    (vec(part, 1..9), prop_oneof![Just("@"), Just("_")]).prop_map(|(parts, between)| parts.join(between))
}

#[test]
fn truncations_of_a_stores_payload_are_refused_without_panic() {
    let payload = valid_objects();
    assert_eq!(decode_objects(&payload).unwrap().events.len(), 2);
    for length in 0..payload.len() {
        assert!(decode_objects(&payload[..length]).is_err());
    }
}

proptest! {
    #[test]
    fn random_bytes_break_no_claim(payload in vec(any::<u8>(), 0..512)) {
        claims::batch(&payload);
        claims::objects(&payload);
        claims::frames(&payload);
        claims::object_key(&String::from_utf8_lossy(&payload));
    }

    #[test]
    fn bytes_that_look_like_the_wire_break_no_claim(tail in wire_like()) {
        let payload = [&[0x92, 0xc0][..], &tail].concat();
        claims::batch(&payload);
        claims::objects(&payload);
    }

    #[test]
    fn changed_bytes_break_no_claim(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        store in any::<bool>(),
    ) {
        let mut payload = if store { valid_objects() } else { valid_payload() };
        for (at, byte) in changes {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        claims::batch(&payload);
        claims::objects(&payload);
    }

    #[test]
    fn parts_of_valid_payloads_put_together_break_no_claim(
        cut in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
    ) {
        let (one, other) = (valid_payload(), valid_objects());
        let payload = [&one[..cut.index(one.len())], &other[from.index(other.len())..]].concat();
        claims::batch(&payload);
        claims::objects(&payload);
    }

    /// Any store an engine could make comes back as it was, whichever form it is written in.
    #[test]
    fn a_store_comes_back_as_it_was_written(
        blocks in vec((any::<u64>(), vec(any::<u32>(), 3)), 1..5),
        parent in any::<Option<i64>>(),
        group in any::<u32>(),
        as_array in any::<bool>(),
    ) {
        let hashes = array(blocks.iter().map(|&(hash, _)| Value::Uint(hash)));
        let tokens: Vec<u32> = blocks.iter().flat_map(|(_, tokens)| tokens).copied().collect();
        let fields = [
            ("type", text("BlockStored")),
            ("block_hashes", hashes),
            ("parent_block_hash", parent.map_or_else(nil, Value::Int)),
            ("token_ids", array(tokens.iter().map(|&token| Value::Int(token.into())))),
            ("block_size", Value::Int(3)),
            ("lora_id", nil()),
            ("medium", text("gpu")),
            ("lora_name", nil()),
            ("extra_keys", nil()),
            ("group_idx", Value::Int(group.into())),
        ];
        let event = if as_array { array(fields.map(|(_, value)| value)) } else { map(fields) };
        let batch = decode_batch(&encode(&array([nil(), array([event])]))).unwrap();
        let expected = StoredBlocks {
            hashes: blocks.iter().map(|&(hash, _)| EngineBlockHash(hash)).collect(),
            parent: parent.map(|hash| EngineBlockHash(hash.cast_unsigned())),
            tokens,
            block_size: 3,
            group,
            ..event::plain()
        };
        prop_assert_eq!(batch.events, [BlockEvent::Stored(expected)]);
    }

    #[test]
    fn keys_that_look_like_an_objects_break_no_claim(key in key_like()) {
        claims::object_key(&key);
    }
}
