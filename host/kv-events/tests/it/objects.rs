//! A store's events, of both publishers there are, written by hand.

use kv_events::{EventKind, RejectReason, decode_objects};
use routing::{EngineBlockHash, ObjectEvent, Shard, StoreObject, Tier};

use crate::encode::{Value, array, encode, ints, map, nil, text};

const KEY: &str = "dep@m@tp_rank:1@pcp0@dcp0@pp_rank:2@group:3@0123456789abcdef000000000000002a";

/// Returns an event as the released publisher makes it, with `more` fields in place of its own of those names.
fn event(kind: &str, more: &[(&str, Value)]) -> Value {
    let mut pairs = vec![
        ("event_id", Value::Int(7)),
        ("timestamp", Value::Uint(1_700_000_000_123)),
        ("event_type", text(kind)),
        ("model_name", nil()),
        ("block_size", nil()),
        ("additional_salt", nil()),
        ("lora_name", nil()),
        ("tenant_id", text("default")),
        ("backend_id", text("pool-a")),
        ("group_id", nil()),
        ("medium", text("cpu")),
        ("dp_rank", nil()),
        ("object_key", text(KEY)),
        ("seq_hashes", array([])),
        ("base_block_idx", Value::Int(0)),
        ("parent_hash", nil()),
        ("token_ids", nil()),
    ];
    pairs.retain(|(name, _)| more.iter().all(|(other, _)| other != name));
    pairs.extend(more.iter().cloned());
    map(pairs)
}

fn object() -> StoreObject {
    StoreObject {
        model: "dep@m".into(),
        block: EngineBlockHash(42),
        shard: Shard {
            tensor: 1,
            pipeline: 2,
            group: 3,
            ..Shard::default()
        },
    }
}

/// Returns an object known by a number only.
fn bare(block: u64) -> StoreObject {
    StoreObject {
        model: "".into(),
        block: EngineBlockHash(block),
        shard: Shard::default(),
    }
}

fn stored(object: StoreObject, tier: Tier) -> ObjectEvent {
    ObjectEvent::Stored { object, tier }
}

fn batch(events: impl IntoIterator<Item = Value>) -> Vec<u8> {
    encode(&array([
        Value::Uint(1_700_000_000_123),
        array(events),
        Value::Int(0),
    ]))
}

#[track_caller]
fn check(event: Value, expected: &[ObjectEvent]) {
    let decoded = decode_objects(&batch([event])).unwrap();
    assert_eq!(decoded.rejected.samples(), []);
    assert_eq!(decoded.events, expected);
    assert_eq!(decoded.ts_ms, Some(1_700_000_000_123.0));
}

/// Checks that the event is skipped for that reason, and the good one after it is not.
#[track_caller]
fn check_rejected(bad: Value, kind: EventKind, reason: RejectReason) {
    let decoded = decode_objects(&batch([bad, event("stored", &[])])).unwrap();
    let rejected: Vec<_> = decoded
        .rejected
        .samples()
        .iter()
        .map(|event| (event.index, event.kind, event.reason))
        .collect();
    assert_eq!(rejected, [(0, kind, reason)]);
    assert_eq!(decoded.events, [stored(object(), Tier::Host)]);
}

#[test]
fn reads_the_released_publishers_events_by_their_keys() {
    check(event("stored", &[]), &[stored(object(), Tier::Host)]);
    check(
        event("stored", &[("medium", text("DISK"))]),
        &[stored(object(), Tier::Disk)],
    );
    let (object, tier) = (object(), Some(Tier::Host));
    check(event("removed", &[]), &[ObjectEvent::Removed { object, tier }]);
    check(
        event("cleared", &[("medium", nil()), ("object_key", nil())]),
        &[ObjectEvent::Cleared],
    );
}

#[test]
fn a_removal_that_names_no_medium_is_from_everywhere() {
    let object = object();
    check(
        event("removed", &[("medium", nil())]),
        &[ObjectEvent::Removed { object, tier: None }],
    );
}

#[test]
fn reads_the_old_names_of_the_kinds() {
    let old = [("event_type", nil()), ("type", text("BlockStored"))];
    check(event("", &old), &[stored(object(), Tier::Host)]);
    let both = [("type", text("BlockStored")), ("block_hashes", ints(&[-22]))];
    check(event("stored", &both), &[stored(object(), Tier::Host)]);
}

#[test]
fn reads_bare_numbers_as_keys() {
    let key = [
        ("object_key", text("0xdeadbeefcafef00d")),
        ("seq_hashes", ints(&[1])),
    ];
    check(
        event("stored", &key),
        &[stored(bare(0xdead_beef_cafe_f00d), Tier::Host)],
    );
    let mut named = bare(5);
    named.model = "m".into();
    let key = [("object_key", text("5")), ("model_name", text("m"))];
    check(event("stored", &key), &[stored(named, Tier::Host)]);
}

#[test]
fn takes_the_hashes_where_no_key_is_sent() {
    let hashes = array([Value::Uint(u64::MAX), Value::Int(-2)]);
    let fields = [("object_key", nil()), ("seq_hashes", hashes)];
    check(
        event("stored", &fields),
        &[
            stored(bare(u64::MAX), Tier::Host),
            stored(bare(u64::MAX - 1), Tier::Host),
        ],
    );
}

#[test]
fn the_objects_of_one_event_share_the_name_of_their_model() {
    let name = "m".repeat(10_000);
    let fields = [
        ("object_key", nil()),
        ("model_name", text(&name)),
        ("seq_hashes", ints(&[1, 2])),
    ];
    let event = event("stored", &fields);
    let batch = decode_objects(&encode(&array([nil(), array([event])]))).unwrap();
    let [
        ObjectEvent::Stored { object: one, .. },
        ObjectEvent::Stored { object: other, .. },
    ] = &batch.events[..]
    else {
        panic!("{batch:?}")
    };
    assert!(std::sync::Arc::ptr_eq(&one.model, &other.model));
}

/// Returns the fields that `dev/conductor`'s publisher took out of [`KEY`].
fn connector_fields() -> Vec<(&'static str, Value)> {
    vec![
        ("connector_block_hash", text("0123456789abcdef000000000000002a")),
        ("cache_prefix", text("dep")),
        ("model_name", text("m")),
        ("tp_rank", Value::Int(1)),
        ("pcp_rank", Value::Int(0)),
        ("dcp_rank", Value::Int(0)),
        ("pp_rank", Value::Int(2)),
        ("group_id", text("3")),
        ("seq_hashes", ints(&[42])),
        ("block_size", Value::Int(16)),
        ("dp_rank", Value::Int(0)),
    ]
}

#[test]
fn reads_the_earlier_publishers_parts_as_it_reads_the_key() {
    let mut fields = connector_fields();
    check(event("stored", &fields), &[stored(object(), Tier::Host)]);
    for key in [nil(), text("a key of a grammar to come")] {
        fields.retain(|(name, _)| *name != "object_key");
        fields.push(("object_key", key));
        check(event("stored", &fields), &[stored(object(), Tier::Host)]);
    }
}

#[test]
fn reads_the_parts_of_an_ascend_key_of_one_layer() {
    let fields = [
        ("object_key", nil()),
        ("connector_block_hash", text("0x000000000000002a")),
        ("model_name", text("m")),
        ("head_or_tp_rank", Value::Int(5)),
        ("tp_rank", nil()),
        ("layer_id", Value::Int(31)),
        ("group_id", text("vllm-mooncake-store:m@2a")),
    ];
    let shard = Shard {
        tensor: 5,
        layer: 31,
        ..Shard::default()
    };
    let object = StoreObject {
        model: "m".into(),
        block: EngineBlockHash(42),
        shard,
    };
    check(event("stored", &fields), &[stored(object, Tier::Host)]);
}

#[test]
fn skips_objects_that_are_no_blocks_whatever_else_is_wrong_with_them() {
    let digest = "ab".repeat(32);
    for (key, reason) in [
        ("weights/layer.0", RejectReason::UnknownObjectKey),
        (
            "m@tp_rank:0@pcp0@dcp0@pp_rank:0@5f2ac0ffee",
            RejectReason::BadObjectKey,
        ),
        (&format!("{digest}_0_draft_k"), RejectReason::SidecarObject),
    ] {
        let fields = [("object_key", text(key))];
        check_rejected(event("stored", &fields), EventKind::Stored, reason);
        check_rejected(event("removed", &fields), EventKind::Removed, reason);
    }
    let fields = [("object_key", text("weights")), ("tp_rank", text("x"))];
    check_rejected(
        event("removed", &fields),
        EventKind::Removed,
        RejectReason::UnknownObjectKey,
    );
}

#[test]
fn skips_stores_of_no_or_another_medium() {
    for medium in [nil(), text("gpu"), text("tape"), text("external")] {
        check_rejected(
            event("stored", &[("medium", medium)]),
            EventKind::Stored,
            RejectReason::UnknownMedium,
        );
    }
}

#[test]
fn skips_events_that_name_nothing_or_contradict_themselves() {
    let stored = EventKind::Stored;
    let nothing = event("stored", &[("object_key", nil())]);
    check_rejected(nothing, stored, RejectReason::MissingField);
    let two_kinds = event("stored", &[("type", text("BlockRemoved"))]);
    check_rejected(two_kinds, stored, RejectReason::BadField);
    let rank = event("stored", &[("tp_rank", Value::Int(-1))]);
    check_rejected(rank, stored, RejectReason::BadField);
    let hash = [("object_key", nil()), ("seq_hashes", array([nil()]))];
    check_rejected(event("stored", &hash), stored, RejectReason::BadHash);
    let connector = [("object_key", nil()), ("connector_block_hash", text("2a"))];
    check_rejected(event("stored", &connector), stored, RejectReason::BadObjectKey);
    let moved = event("moved", &[]);
    check_rejected(moved, EventKind::Unknown, RejectReason::UnknownType);
}

#[test]
fn separates_an_engines_events() {
    let engine = map([("type", text("BlockRemoved")), ("block_hashes", ints(&[1]))]);
    check_rejected(engine, EventKind::Removed, RejectReason::EngineEvent);
    let unknown = EventKind::Unknown;
    let array_form = array([text("BlockRemoved"), ints(&[1])]);
    check_rejected(array_form, unknown, RejectReason::NotAnEvent);
    check_rejected(map([("a", nil())]), unknown, RejectReason::NotAnEvent);
    check_rejected(Value::Int(1), unknown, RejectReason::NotAnEvent);
}
