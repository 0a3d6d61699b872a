//! Tests of skipped events: their reasons, and their effect on the blocks already known.

use kv_events::{EventKind, RejectReason, RejectedEvent, decode_batch};
use routing::ExtraKey;

use crate::encode::{Value, array, bin, encode, ints, map, nil, text};
use crate::event::{check_rejected, check_stored, stored_array, stored_map};

#[track_caller]
fn check_store_rejected(field: &str, value: Value, reason: RejectReason) {
    check_rejected(stored_map(&[(field, value)]), EventKind::Stored, reason);
}

#[test]
fn values_that_are_no_events_are_skipped() {
    let unknown = EventKind::Unknown;
    check_rejected(Value::Int(1), unknown, RejectReason::NotAnEvent);
    check_rejected(nil(), unknown, RejectReason::NotAnEvent);
    check_rejected(array([]), unknown, RejectReason::NotAnEvent);
    check_rejected(array([Value::Int(1)]), unknown, RejectReason::NotAnEvent);
    check_rejected(map([("a", nil())]), unknown, RejectReason::NotAnEvent);
    check_rejected(
        array([text("BlockPinned"), ints(&[1])]),
        unknown,
        RejectReason::UnknownType,
    );
    check_rejected(
        map([("type", text("BlockPinned"))]),
        unknown,
        RejectReason::UnknownType,
    );
}

#[test]
fn skips_events_that_lack_a_field() {
    let (stored, removed) = (EventKind::Stored, EventKind::Removed);
    check_rejected(array([text("BlockStored")]), stored, RejectReason::MissingField);
    check_rejected(array([text("BlockRemoved")]), removed, RejectReason::MissingField);
    check_rejected(
        map([("type", text("BlockRemoved")), ("medium", text("GPU"))]),
        removed,
        RejectReason::MissingField,
    );
    check_store_rejected("block_size", nil(), RejectReason::MissingField);
}

#[test]
fn skips_stores_with_values_that_cannot_be() {
    check_store_rejected("block_size", Value::Int(0), RejectReason::BadBlockSize);
    check_store_rejected("block_size", Value::Int(-2), RejectReason::BadBlockSize);
    check_store_rejected("token_ids", ints(&[1, -2]), RejectReason::BadToken);
    check_store_rejected("token_ids", ints(&[1, 1 << 32]), RejectReason::BadToken);
    check_store_rejected("token_ids", array([nil()]), RejectReason::BadToken);
    check_store_rejected("block_hashes", array([nil()]), RejectReason::BadHash);
    check_store_rejected("block_hashes", array([bin(&[1; 7])]), RejectReason::BadHash);
    check_store_rejected("block_hashes", array([Value::Float(1.0)]), RejectReason::BadHash);
    check_store_rejected("parent_block_hash", text("short"), RejectReason::BadHash);
    check_store_rejected("medium", text("TAPE"), RejectReason::UnknownMedium);
    check_store_rejected("lora_name", Value::Int(1), RejectReason::BadField);
    check_store_rejected("lora_id", text("1"), RejectReason::BadField);
    check_store_rejected("group_idx", Value::Int(-1), RejectReason::BadField);
    check_store_rejected("kv_cache_spec_kind", Value::Int(1), RejectReason::BadField);
    let dynamo_images = [nil(), text("GPU"), array([nil(), nil()])];
    check_rejected(
        stored_array(&dynamo_images),
        EventKind::Stored,
        RejectReason::BadField,
    );
}

#[test]
fn skips_extra_keys_that_do_not_belong_to_blocks() {
    let reason = RejectReason::BadExtraKeys;
    check_store_rejected("extra_keys", array([nil()]), reason);
    check_store_rejected("extra_keys", array([nil(), nil(), nil()]), reason);
    check_store_rejected("extra_keys", array([array([nil()]), nil()]), reason);
    check_store_rejected("extra_keys", text("salt"), reason);
    let deep = array([array([array([array([array([text("x")])])])])]);
    check_store_rejected("extra_keys", array([deep, nil()]), reason);
}

#[test]
fn skips_stores_with_more_extra_keys_than_their_tokens_can_bring() {
    // Two blocks of two tokens: four blocks' keys and twice the tokens.
    let lists = |keys: usize| array([array(vec![Value::Int(1); keys]), nil()]);
    let most = 2 * 4 + 4 * 2;
    check_stored(stored_map(&[("extra_keys", lists(most))]), |stored| {
        stored.extra_keys = vec![vec![ExtraKey::Int(1); most], vec![]];
    });
    check_store_rejected("extra_keys", lists(most + 1), RejectReason::BadExtraKeys);
}

#[test]
fn counts_rejected_events_and_keeps_the_first_of_them_only() {
    let count = 100_000;
    let mut events = vec![nil(); count];
    events.push(array([text("BlockRemoved")]));
    let decoded = decode_batch(&encode(&array([nil(), array(events)]))).unwrap();
    let rejected = &decoded.rejected;
    assert_eq!((rejected.total(), rejected.samples().len()), (count + 1, 32));
    let by_reason: Vec<_> = rejected.by_reason().collect();
    assert_eq!(
        by_reason,
        [(RejectReason::NotAnEvent, count), (RejectReason::MissingField, 1)]
    );
    // Also where the removal is not among those that are kept.
    assert!(rejected.hides_removal());
}

#[test]
fn skips_stores_whose_tokens_do_not_fill_their_blocks() {
    check_store_rejected("block_size", Value::Int(3), RejectReason::TokenCount);
    check_store_rejected("block_size", Value::Int(4), RejectReason::TokenCount);
    check_store_rejected("token_ids", ints(&[1, 2, 3]), RejectReason::TokenCount);
}

#[test]
fn skips_stores_that_leave_out_blocks_where_no_other_reports_which() {
    let reason = RejectReason::SkippedBlocks;
    check_store_rejected("block_hashes", ints(&[12]), reason);
    check_store_rejected("token_ids", ints(&[1, 2, 3, 4, 5, 6]), reason);
    let salted = [("block_hashes", ints(&[12])), ("cache_salt", text("s"))];
    check_rejected(stored_map(&salted), EventKind::Stored, reason);
}

/// Connectors that move blocks know their names only; vLLM's placeholder does not know their size either.
#[test]
fn skips_stores_without_tokens() {
    check_store_rejected("token_ids", nil(), RejectReason::NoTokens);
    check_store_rejected("token_ids", array([]), RejectReason::NoTokens);
    let placeholder = [("token_ids", array([])), ("block_size", Value::Int(0))];
    check_rejected(
        stored_map(&placeholder),
        EventKind::Stored,
        RejectReason::NoTokens,
    );
}

#[test]
fn skips_bigram_pairs_in_maps_and_arrays() {
    let pairs = array([ints(&[1, 2]), ints(&[2, 3]), ints(&[3, 4]), ints(&[4, 5])]);
    check_store_rejected("token_ids", pairs.clone(), RejectReason::BigramTokens);
    let event = array([text("BlockStored"), ints(&[11, 12]), nil(), pairs, Value::Int(2)]);
    check_rejected(event, EventKind::Stored, RejectReason::BigramTokens);
}

#[test]
fn separates_a_stores_events() {
    let removed = map([
        ("event_type", text("removed")),
        ("type", text("BlockRemoved")),
        ("seq_hashes", ints(&[1])),
        ("block_hashes", ints(&[1])),
    ]);
    check_rejected(removed, EventKind::Removed, RejectReason::StorePool);
}

#[test]
fn only_a_removal_of_what_may_be_known_hides_one() {
    let hides = |kind, reason| {
        RejectedEvent {
            index: 0,
            kind,
            reason,
        }
        .hides_removal()
    };
    for &reason in RejectReason::ALL {
        assert!(!hides(EventKind::Stored, reason), "{reason}");
        assert!(!hides(EventKind::Unknown, reason), "{reason}");
        assert_eq!(
            hides(EventKind::Removed, reason),
            hides(EventKind::Cleared, reason)
        );
    }
    for reason in [
        RejectReason::BadHash,
        RejectReason::MissingField,
        RejectReason::BadField,
    ] {
        assert!(hides(EventKind::Removed, reason), "{reason}");
    }
    for reason in [
        RejectReason::StorePool,
        RejectReason::UnknownMedium,
        RejectReason::SidecarObject,
    ] {
        assert!(!hides(EventKind::Removed, reason), "{reason}");
    }
}

#[test]
fn every_reason_has_its_number_and_a_label_of_its_own() {
    for (number, &reason) in RejectReason::ALL.iter().enumerate() {
        assert_eq!(reason as usize, number);
        let same = RejectReason::ALL
            .iter()
            .filter(|other| other.label() == reason.label());
        assert_eq!(same.count(), 1, "{}", reason.label());
    }
}
