//! The batch around the events.

use kv_events::{DecodeError, decode_batch, decode_objects};
use routing::{BlockEvent, DpRank, ObjectEvent};

use crate::encode::{Value, array, encode, map, nil, text};

fn cleared() -> Value {
    array([map([("type", text("AllBlocksCleared")), ("seq", Value::Int(1))])])
}

#[track_caller]
fn check(envelope: &Value, ts_ms: Option<f64>, dp_rank: Option<u16>) {
    let decoded = decode_batch(&encode(envelope)).unwrap();
    assert_eq!(decoded.events, [BlockEvent::Cleared]);
    assert_eq!(
        (decoded.ts_ms, decoded.dp_rank),
        (ts_ms, dp_rank.map(DpRank)),
        "{envelope:?}"
    );
}

#[test]
fn reads_arrays_of_two_three_and_more_with_a_rank_present_nil_or_absent() {
    let ts = || Value::Float(1.5);
    check(&array([ts(), cleared()]), Some(1500.0), None);
    check(&array([ts(), cleared(), nil()]), Some(1500.0), None);
    check(&array([ts(), cleared(), Value::Int(3)]), Some(1500.0), Some(3));
    check(
        &array([ts(), cleared(), Value::Int(0), text("later")]),
        Some(1500.0),
        Some(0),
    );
}

#[test]
fn reads_map_envelopes_in_any_order() {
    for name in ["data_parallel_rank", "attn_dp_rank", "dp_rank"] {
        let envelope = map([
            (name, Value::Int(1)),
            ("events", cleared()),
            ("later", array([nil()])),
            ("ts", Value::Float(1.5)),
        ]);
        check(&envelope, Some(1500.0), Some(1));
    }
    check(&map([("events", cleared())]), None, None);
}

#[test]
fn reads_timestamps_as_integers_and_floats_of_seconds_and_milliseconds() {
    for (ts, ts_ms) in [
        (Value::Int(2), Some(2000.0)),
        (Value::Float(2.25), Some(2250.0)),
        (Value::Uint(1_700_000_000), Some(1_700_000_000_000.0)),
        (Value::Uint(1_700_000_000_123), Some(1_700_000_000_123.0)),
        (Value::Float(1_700_000_000_123.0), Some(1_700_000_000_123.0)),
        (Value::Float(f64::NAN), None),
        (Value::Float(f64::MIN), None),
        (Value::Int(-1), None),
        (nil(), None),
        (text("noon"), None),
    ] {
        check(&array([ts, cleared()]), ts_ms, None);
    }
}

#[test]
fn a_stores_batch_has_the_same_envelopes() {
    let events = || array([map([("event_type", text("cleared"))])]);
    let millis = || Value::Uint(1_700_000_000_123);
    for envelope in [
        array([millis(), events()]),
        array([millis(), events(), nil()]),
        map([("ts", millis()), ("events", events())]),
    ] {
        let decoded = decode_objects(&encode(&envelope)).unwrap();
        assert_eq!(decoded.events, [ObjectEvent::Cleared]);
        assert_eq!(decoded.ts_ms, Some(1_700_000_000_123.0));
    }
}

#[track_caller]
fn check_refused(payload: &[u8], error: DecodeError) {
    assert_eq!(decode_batch(payload).unwrap_err(), error);
    assert_eq!(decode_objects(payload).unwrap_err(), error);
}

#[test]
fn payloads_that_are_no_batch_are_refused() {
    check_refused(&[], DecodeError::Malformed);
    check_refused(&[0xc1], DecodeError::Malformed);
    for envelope in [
        Value::Int(1),
        array([]),
        array([Value::Int(1)]),
        array([Value::Int(1), Value::Int(2)]),
        array([Value::Int(1), nil()]),
        map([("ts", Value::Int(2))]),
        map([("events", array([])), ("events", cleared())]),
    ] {
        check_refused(&encode(&envelope), DecodeError::NotABatch);
    }
}

#[test]
fn refuses_a_rank_that_cannot_be_one() {
    for rank in [Value::Int(-1), Value::Int(1 << 16), text("0")] {
        check_refused(&encode(&array([nil(), array([]), rank])), DecodeError::BadRank);
    }
}

#[test]
fn refuses_bytes_after_the_batch() {
    let batch = encode(&array([nil(), array([])]));
    check_refused(&[&batch[..], &batch[..]].concat(), DecodeError::TrailingBytes);
    check_refused(&[&batch[..], &[0xc1]].concat(), DecodeError::TrailingBytes);
}

#[test]
fn believes_no_count_that_the_payload_cannot_hold() {
    // An array of 2^32 - 1 events, then of as many tokens, in a payload of a few bytes.
    check_refused(
        &[0x92, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0],
        DecodeError::Malformed,
    );
    let mut tokens = vec![0x92, 0xc0, 0x91, 0x94, 0xab];
    tokens.extend(b"BlockStored");
    tokens.extend([0x90, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff, 0x01]);
    check_refused(&tokens, DecodeError::Malformed);
}
