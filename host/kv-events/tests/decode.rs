//! Every layout of the event wire, from payloads written here by hand: these claims hold without the captures.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod encode;

use encode::{Value, array, bin, encode, ints, map, nil, text};
use kv_events::{DecodeError, EventKind, RejectReason, decode_batch};
use routing::{
    Attention, BlockEvent, DpRank, EngineBlockHash, ExtraKey, Lora, RemovedBlocks, StoredBlocks, Tier,
};

/// Two blocks of two tokens in the array form, with `more` fields after the block size.
fn stored_array(more: &[Value]) -> Value {
    let fields = [
        text("BlockStored"),
        ints(&[11, 12]),
        nil(),
        ints(&[1, 2, 3, 4]),
        Value::Int(2),
    ];
    array(fields.into_iter().chain(more.iter().cloned()))
}

/// The same in the map form, with `more` pairs after the required ones.
fn stored_map(more: &[(&str, Value)]) -> Value {
    let required = [
        ("type", text("BlockStored")),
        ("block_hashes", ints(&[11, 12])),
        ("parent_block_hash", nil()),
        ("token_ids", ints(&[1, 2, 3, 4])),
        ("block_size", Value::Int(2)),
    ];
    map(required.into_iter().chain(more.iter().cloned()))
}

fn plain() -> StoredBlocks {
    StoredBlocks {
        hashes: vec![EngineBlockHash(11), EngineBlockHash(12)],
        parent: None,
        tokens: vec![1, 2, 3, 4],
        block_size: 2,
        tier: Tier::Device,
        lora: None,
        extra_keys: Vec::new(),
        group: 0,
        attention: Attention::Full,
    }
}

fn batch(event: Value) -> Vec<u8> {
    encode(&array([Value::Float(1.5), array([event])]))
}

#[track_caller]
fn check(event: Value, expected: BlockEvent) {
    let decoded = decode_batch(&batch(event)).unwrap();
    assert_eq!(decoded.rejected, []);
    assert_eq!(decoded.events, [expected]);
}

#[track_caller]
fn check_stored(event: Value, change: impl FnOnce(&mut StoredBlocks)) {
    let mut expected = plain();
    change(&mut expected);
    check(event, BlockEvent::Stored(expected));
}

#[track_caller]
fn check_rejected(event: Value, kind: EventKind, reason: RejectReason) {
    let good = array([text("AllBlocksCleared")]);
    let payload = encode(&array([Value::Float(1.5), array([event, good])]));
    let decoded = decode_batch(&payload).unwrap();
    let rejected: Vec<_> = decoded
        .rejected
        .iter()
        .map(|event| (event.index, event.kind, event.reason))
        .collect();
    assert_eq!(rejected, [(0, kind, reason)]);
    assert_eq!(
        decoded.events,
        [BlockEvent::Cleared],
        "the good event of the batch survives"
    );
}

#[test]
fn reads_arrays_of_every_length_the_engines_ever_sent() {
    let (gpu, cpu) = (text("GPU"), text("CPU"));
    check_stored(stored_array(&[]), |_| {});
    check_stored(stored_array(&[nil()]), |_| {});
    check_stored(stored_array(&[nil(), gpu.clone()]), |_| {});
    check_stored(stored_array(&[Value::Int(3), cpu.clone()]), |stored| {
        stored.lora = Some(Lora::Id(3));
        stored.tier = Tier::Host;
    });
    check_stored(stored_array(&[Value::Int(3), cpu, text("ad")]), |stored| {
        stored.lora = Some(Lora::Name("ad".into()));
        stored.tier = Tier::Host;
    });
    let keys = array([array([text("salt")]), nil()]);
    let full = [
        nil(),
        gpu,
        nil(),
        keys,
        Value::Int(1),
        text("sliding_window"),
        Value::Int(128),
        text("later"),
    ];
    check_stored(stored_array(&full), |stored| {
        stored.extra_keys = vec![vec![ExtraKey::Text("salt".into())], vec![]];
        stored.group = 1;
        stored.attention = Attention::Window { tokens: 128 };
    });
}

#[test]
fn reads_maps_in_any_order_and_ignores_what_it_does_not_know() {
    check_stored(stored_map(&[]), |_| {});
    check_stored(
        stored_map(&[("locality", text("LOCAL")), ("new", map([("a", ints(&[1]))]))]),
        |_| {},
    );
    check_stored(
        stored_map(&[("lora_name", text("ad")), ("lora_id", Value::Int(1))]),
        |stored| {
            stored.lora = Some(Lora::Name("ad".into()));
        },
    );
    let type_last = map([
        ("medium", text("Disk")),
        ("block_hashes", ints(&[7])),
        ("type", text("BlockRemoved")),
    ]);
    let hashes = vec![EngineBlockHash(7)];
    check(
        type_last,
        BlockEvent::Removed(RemovedBlocks {
            hashes,
            tier: Some(Tier::Disk),
            group: 0,
        }),
    );
    check(map([("type", text("AllBlocksCleared"))]), BlockEvent::Cleared);
}

#[test]
fn a_removal_that_names_no_medium_is_from_every_tier() {
    for medium in [nil(), Value::Int(0)] {
        let removed = RemovedBlocks {
            hashes: vec![EngineBlockHash(7)],
            tier: None,
            group: 0,
        };
        check(
            array([text("BlockRemoved"), ints(&[7]), medium]),
            BlockEvent::Removed(removed),
        );
    }
}

#[test]
fn reduces_every_form_of_hash_to_the_same_64_bits() {
    let digest: Vec<u8> = (0..32).collect();
    let forms = [
        (Value::Int(-5), 0xffff_ffff_ffff_fffb),
        (Value::Uint(u64::MAX), u64::MAX),
        (bin(&digest), 0x1819_1a1b_1c1d_1e1f),
        (bin(&digest[..16]), 0x0809_0a0b_0c0d_0e0f),
        (bin(&digest[..8]), 0x0001_0203_0405_0607),
    ];
    for (form, expected) in forms {
        let hashes = vec![EngineBlockHash(expected)];
        let removed = RemovedBlocks {
            hashes,
            tier: None,
            group: 0,
        };
        check(
            array([text("BlockRemoved"), array([form])]),
            BlockEvent::Removed(removed),
        );
    }
}

#[test]
fn puts_media_on_tiers_in_any_case() {
    let media = [
        ("GPU", Tier::Device),
        ("gpu", Tier::Device),
        ("cpu", Tier::Host),
        ("CPU_PINNED", Tier::Host),
        ("Disk", Tier::Disk),
        ("STORAGE", Tier::Shared),
        ("external", Tier::Shared),
    ];
    for (medium, tier) in media {
        check_stored(stored_map(&[("medium", text(medium))]), |stored| {
            stored.tier = tier
        });
    }
}

#[test]
fn knows_what_the_layers_of_a_group_need() {
    for (kind, needed) in [
        ("full_attention", Attention::Full),
        ("mla_attention", Attention::Full),
        ("mamba", Attention::State),
        ("newer", Attention::Unknown),
    ] {
        let event = stored_map(&[("kv_cache_spec_kind", text(kind)), ("group_idx", Value::Int(2))]);
        check_stored(event, |stored| {
            stored.attention = needed;
            stored.group = 2;
        });
    }
}

#[test]
fn lays_extra_keys_flat_and_moves_a_salt_of_the_event_into_its_first_block() {
    let keys = array([
        array([text("ad"), array([text("image"), Value::Int(4)]), bin(&[9])]),
        nil(),
    ]);
    check_stored(stored_map(&[("extra_keys", keys)]), |stored| {
        let first = vec![
            ExtraKey::Text("ad".into()),
            ExtraKey::Text("image".into()),
            ExtraKey::Int(4),
            ExtraKey::Bytes([9].into()),
        ];
        stored.extra_keys = vec![first, vec![]];
    });
    check_stored(stored_map(&[("cache_salt", text("s"))]), |stored| {
        stored.extra_keys = vec![vec![ExtraKey::Text("s".into())], vec![]];
    });
}

#[test]
fn takes_an_adapter_number_that_is_not_positive_for_the_base_model() {
    check_stored(stored_array(&[Value::Int(0)]), |_| {});
    check_stored(stored_array(&[Value::Int(-1)]), |_| {});
}

#[test]
fn skips_bad_events_with_a_reason_and_keeps_the_others() {
    let stored = EventKind::Stored;
    check_rejected(Value::Int(1), EventKind::Unknown, RejectReason::NotAnEvent);
    check_rejected(array([]), EventKind::Unknown, RejectReason::NotAnEvent);
    check_rejected(map([("a", nil())]), EventKind::Unknown, RejectReason::NotAnEvent);
    check_rejected(
        array([text("BlockPinned"), ints(&[1])]),
        EventKind::Unknown,
        RejectReason::UnknownType,
    );
    check_rejected(array([text("BlockStored")]), stored, RejectReason::MissingField);
    check_rejected(
        array([text("BlockRemoved")]),
        EventKind::Removed,
        RejectReason::MissingField,
    );
    let short = array([text("BlockRemoved"), array([bin(&[1, 2])])]);
    check_rejected(short, EventKind::Removed, RejectReason::BadHash);
    check_rejected(
        stored_map(&[("medium", text("TAPE"))]),
        stored,
        RejectReason::UnknownMedium,
    );
    check_rejected(
        stored_map(&[("block_size", Value::Int(0))]),
        stored,
        RejectReason::BadBlockSize,
    );
    check_rejected(
        stored_map(&[("block_size", Value::Int(3))]),
        stored,
        RejectReason::TokenCount,
    );
    check_rejected(
        stored_map(&[("token_ids", ints(&[1, -2]))]),
        stored,
        RejectReason::BadToken,
    );
    check_rejected(
        stored_map(&[("token_ids", nil())]),
        stored,
        RejectReason::NoTokens,
    );
    check_rejected(
        stored_map(&[("token_ids", array([]))]),
        stored,
        RejectReason::NoTokens,
    );
    let pairs = array([ints(&[1, 2]), ints(&[2, 3])]);
    check_rejected(
        stored_map(&[("token_ids", pairs)]),
        stored,
        RejectReason::BigramTokens,
    );
    check_rejected(
        stored_map(&[("extra_keys", array([nil()]))]),
        stored,
        RejectReason::BadExtraKeys,
    );
    check_rejected(
        stored_map(&[("lora_name", Value::Int(1))]),
        stored,
        RejectReason::BadField,
    );
}

#[test]
fn tells_a_store_pools_events_apart() {
    let event = map([
        ("event_type", text("removed")),
        ("type", text("BlockRemoved")),
        ("seq_hashes", ints(&[1])),
        ("block_hashes", ints(&[1])),
    ]);
    let decoded = decode_batch(&batch(event)).unwrap();
    assert_eq!(decoded.rejected[0].reason, RejectReason::StorePool);
    assert!(!decoded.rejected[0].hides_removal());
}

#[test]
fn reads_every_envelope() {
    let events = || array([array([text("AllBlocksCleared")])]);
    let millis = Value::Uint(1_700_000_000_123);
    let envelopes = [
        (array([Value::Float(1.5), events()]), Some(1500.0), None),
        (array([Value::Int(2), events(), nil()]), Some(2000.0), None),
        (
            array([millis, events(), Value::Int(3)]),
            Some(1_700_000_000_123.0),
            Some(DpRank(3)),
        ),
        (
            array([nil(), events(), Value::Int(0), text("later")]),
            None,
            Some(DpRank(0)),
        ),
        (
            map([
                ("ts", Value::Float(1.5)),
                ("events", events()),
                ("data_parallel_rank", Value::Int(1)),
            ]),
            Some(1500.0),
            Some(DpRank(1)),
        ),
    ];
    for (envelope, ts_ms, dp_rank) in envelopes {
        let decoded = decode_batch(&encode(&envelope)).unwrap();
        assert_eq!(decoded.events, [BlockEvent::Cleared]);
        assert_eq!((decoded.ts_ms, decoded.dp_rank), (ts_ms, dp_rank));
    }
}

#[test]
fn refuses_what_is_no_batch() {
    let refused = |envelope: &Value| decode_batch(&encode(envelope)).unwrap_err();
    assert_eq!(decode_batch(&[]).unwrap_err(), DecodeError::Malformed);
    assert_eq!(decode_batch(&[0xc1]).unwrap_err(), DecodeError::Malformed);
    assert_eq!(refused(&Value::Int(1)), DecodeError::NotABatch);
    assert_eq!(refused(&array([Value::Int(1)])), DecodeError::NotABatch);
    assert_eq!(
        refused(&array([Value::Int(1), Value::Int(2)])),
        DecodeError::NotABatch
    );
    assert_eq!(refused(&map([("ts", Value::Int(2))])), DecodeError::NotABatch);
    assert_eq!(
        refused(&array([nil(), array([]), Value::Int(-1)])),
        DecodeError::BadRank
    );
    assert_eq!(
        refused(&array([nil(), array([]), text("x")])),
        DecodeError::BadRank
    );
}

#[test]
fn believes_no_count_that_the_payload_cannot_hold() {
    // An array of 2^32 - 1 events, then of as many tokens, in a payload of a few bytes.
    let events = [0x92, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0];
    assert_eq!(decode_batch(&events).unwrap_err(), DecodeError::Malformed);
    let mut tokens = vec![0x92, 0xc0, 0x91, 0x94, 0xab];
    tokens.extend(b"BlockStored");
    tokens.extend([0x90, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff, 0x01]);
    assert_eq!(decode_batch(&tokens).unwrap_err(), DecodeError::Malformed);
}
