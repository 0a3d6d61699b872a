//! Events of engines, written by hand, and what is claimed of them.

use kv_events::{EventKind, RejectReason, decode_batch};
use routing::{Attention, BlockEvent, EngineBlockHash, StoredBlocks, Tier};

use crate::encode::{Value, array, encode, ints, map, nil, text};

/// Returns two blocks of two tokens in the array form, with `more` fields after the block size.
pub(crate) fn stored_array(more: &[Value]) -> Value {
    let fields = [
        text("BlockStored"),
        ints(&[11, 12]),
        nil(),
        ints(&[1, 2, 3, 4]),
        Value::Int(2),
    ];
    array(fields.into_iter().chain(more.iter().cloned()))
}

/// Returns the same in the map form, with `more` pairs after the required ones. The later of two equal keys counts.
pub(crate) fn stored_map(more: &[(&str, Value)]) -> Value {
    let required = [
        ("type", text("BlockStored")),
        ("block_hashes", ints(&[11, 12])),
        ("parent_block_hash", nil()),
        ("token_ids", ints(&[1, 2, 3, 4])),
        ("block_size", Value::Int(2)),
    ];
    map(required.into_iter().chain(more.iter().cloned()))
}

/// Returns the event that both forms stand for.
pub(crate) fn plain() -> StoredBlocks {
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

#[track_caller]
pub(crate) fn check(event: Value, expected: BlockEvent) {
    let payload = encode(&array([Value::Float(1.5), array([event])]));
    let decoded = decode_batch(&payload).unwrap();
    assert_eq!(decoded.rejected.samples(), []);
    assert_eq!(decoded.events, [expected]);
}

#[track_caller]
pub(crate) fn check_stored(event: Value, change: impl FnOnce(&mut StoredBlocks)) {
    let mut expected = plain();
    change(&mut expected);
    check(event, BlockEvent::Stored(expected));
}

/// Checks that the event is skipped for that reason, and the good one after it is not.
#[track_caller]
pub(crate) fn check_rejected(event: Value, kind: EventKind, reason: RejectReason) {
    let good = array([text("AllBlocksCleared")]);
    let payload = encode(&array([Value::Float(1.5), array([event, good])]));
    let decoded = decode_batch(&payload).unwrap();
    let rejected: Vec<_> = decoded
        .rejected
        .samples()
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
