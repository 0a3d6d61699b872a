//! Tests of encoded batches against frames of recorded engines, byte for byte.

use super::*;
use crate::event::{Adapter, Namespace};

fn wire(form: EventForm, hashes: HashForm, block_size: u32) -> EventWire {
    EventWire {
        form,
        hashes,
        block_size,
        dp_rank: 0,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stored(hashes: &[u64], parent: Option<u64>, tokens: Vec<u32>, namespace: Namespace) -> CacheEvent {
    CacheEvent::Stored(Stored {
        hashes: hashes.to_vec(),
        parent,
        tokens,
        namespace,
    })
}

/// Sequence number 1 of a recorded vLLM 0.32 session.
#[test]
fn a_stored_map_is_what_vllm_wrote() {
    let tokens = [
        829, 796, 11, 824, 11, 814, 82, 266, 26, 340, 632, 262, 7, 681, 85, 306, 323, 576, 7, 681, 85, 8,
        220, 360, 1088, 1574, 1281, 1534, 1502, 615, 520, 293,
    ];
    let event = stored(
        &[11_580_817_330_253_754_168],
        Some(15_127_818_373_567_150_457),
        tokens.to_vec(),
        Namespace::default(),
    );
    let batch = wire(EventForm::Map, HashForm::Int, 32).batch(1_795_225_787.399_680_9, &[event]);
    assert_eq!(
        hex(&batch),
        "93cb41dac03e2ed9945f918ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cfa0b754010a766f38\
         b1706172656e745f626c6f636b5f68617368cfd1f0cea8ff18f979a9746f6b656e5f696473dc0020cd033dcd031c0bcd03380bcd\
         032e52cd010a1acd0154cd0278cd010607cd02a955cd0132cd0143cd024007cd02a95508ccdccd0168cd0440cd0626cd0501cd05\
         fecd05decd0267cd0208cd0125aa626c6f636b5f73697a6520a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e\
         616d65c0aa65787472615f6b65797391c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c6c\
         5f617474656e74696f6e00"
    );
}

/// Output of released publishers of vLLM 0.20 for the same events.
#[test]
fn arrays_are_what_older_publishers_wrote() {
    let hashes = [11, 7, u64::MAX];
    let plain = stored(&hashes, None, (0..12).collect(), Namespace::default());
    let batch = wire(EventForm::Array, HashForm::Int, 4).batch(1_700_000_000.5, &[plain]);
    // The recorded publisher had no extra keys: nil there, one nil per block here.
    assert_eq!(
        hex(&batch),
        "93cb41d954fc40200000919aab426c6f636b53746f726564930b07cfffffffffffffffffc09c000102030405060708090a0b04c0\
         a3475055c093c0c0c00000"
    );
    let batch = wire(EventForm::Array, HashForm::Int, 4).batch(1_700_000_000.5, &[CacheEvent::Cleared]);
    assert_eq!(
        hex(&batch),
        "93cb41d954fc402000009191b0416c6c426c6f636b73436c656172656400"
    );
}

#[track_caller]
fn check(event: CacheEvent, expected: &str) {
    let batch = wire(EventForm::Map, HashForm::Int, 1).batch(0.5, &[event]);
    let value = rmpv::decode::read_value(&mut &batch[..]).expect("msgpack");
    assert_eq!(value[1][0].to_string(), expected);
}

#[test]
fn salt_and_adapter_are_in_the_fields_where_engines_put_them() {
    let namespace = Namespace {
        adapter: Some(Adapter {
            id: 2,
            name: "ad".into(),
        }),
        salt: Some("tenant".into()),
    };
    check(
        stored(&[0, 0], None, vec![5, 6], namespace),
        r#"{"type": "BlockStored", "block_hashes": [0, 0], "parent_block_hash": nil, "token_ids": [5, 6], "block_size": 1, "lora_id": 2, "medium": "GPU", "lora_name": "ad", "extra_keys": [["ad", "tenant"], ["ad"]], "group_idx": 0, "kv_cache_spec_kind": "full_attention"}"#,
    );
}

#[test]
fn a_removal_names_one_hash() {
    check(
        CacheEvent::Removed(11_580_817_330_253_754_168),
        r#"{"type": "BlockRemoved", "block_hashes": [11580817330253754168], "medium": "GPU", "group_idx": 0}"#,
    );
}

#[test]
fn the_long_form_of_a_hash_ends_in_the_short_one() {
    let digest = digest(0x0123_4567_89ab_cdef);
    assert_eq!(digest.len(), 32);
    assert_eq!(digest[24..], 0x0123_4567_89ab_cdef_u64.to_be_bytes());
    let batch = wire(EventForm::Array, HashForm::Bytes, 1).batch(0.5, &[CacheEvent::Removed(1)]);
    let value = rmpv::decode::read_value(&mut &batch[..]).expect("msgpack");
    assert_eq!(value[1][0][1][0].as_slice().expect("bytes")[31], 1);
}
