//! No bytes make the decoder panic, and what it makes of them is never larger than they could say.

mod encode;

use encode::{Value, array, bin, encode, ints, map, nil, text};
use kv_events::{decode_batch, fingerprint};
use proptest::collection::vec;
use proptest::prelude::*;

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
    assert_eq!((batch.events.len(), batch.rejected.len()), (0, 1));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(payload in vec(any::<u8>(), 0..512)) {
        let _ = decode_batch(&payload);
        let _ = fingerprint(&payload);
    }

    #[test]
    fn bytes_that_look_like_the_wire_never_panic(tail in wire_like()) {
        let payload = [&[0x92, 0xc0][..], &tail].concat();
        if let Ok(batch) = decode_batch(&payload) {
            prop_assert!(batch.events.len() + batch.rejected.len() <= payload.len());
        }
    }

    #[test]
    fn a_changed_byte_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut payload = valid_payload();
        let at = at.index(payload.len());
        payload[at] = byte;
        let _ = decode_batch(&payload);
    }
}
