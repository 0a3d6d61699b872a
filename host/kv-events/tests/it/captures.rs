//! Real engines' bytes, where `/work/shared`-style captures lie beside the project: every payload is decoded and
//! compared with the JSON view that the capture tool (another decoder) wrote. The other tests make the same claims
//! without them.

use kv_events::{DecodedBatch, RejectReason, ReplayPart, decode_batch, live_message, replay_part};
use routing::{BlockEvent, EngineBlockHash, StoredBlocks};
use serde_json::Value;

use crate::recordings::{data, files, frames, hash, lines};

/// Returns a field of an event's JSON view, by its name in maps and its place in arrays.
fn field<'a>(event: &'a Value, name: &str) -> &'a Value {
    let places = [
        "type",
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
    ];
    let removed = event.get(0).and_then(Value::as_str) == Some("BlockRemoved");
    let place = places
        .iter()
        .position(|&known| known == name)
        .filter(|&place| !removed || place < 2);
    match event {
        Value::Object(fields) => fields.get(name).unwrap_or(&Value::Null),
        _ => place.and_then(|place| event.get(place)).unwrap_or(&Value::Null),
    }
}

fn hashes(event: &Value) -> Vec<EngineBlockHash> {
    field(event, "block_hashes")
        .as_array()
        .unwrap()
        .iter()
        .map(hash)
        .collect()
}

#[track_caller]
fn compare_stored(stored: &StoredBlocks, view: &Value) {
    assert_eq!(stored.hashes, hashes(view));
    let parent = field(view, "parent_block_hash");
    assert_eq!(stored.parent, (!parent.is_null()).then(|| hash(parent)));
    let tokens: Vec<u64> = stored.tokens.iter().copied().map(u64::from).collect();
    let expected: Vec<u64> = field(view, "token_ids")
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token.as_u64().unwrap())
        .collect();
    assert_eq!(tokens, expected);
    assert_eq!(
        Some(u64::from(stored.block_size)),
        field(view, "block_size").as_u64()
    );
    assert_eq!(
        stored.tokens.len(),
        stored.hashes.len() * stored.block_size as usize
    );
}

/// Compares a decoded batch with its JSON view; answers the number of events.
#[track_caller]
pub(crate) fn compare(batch: &DecodedBatch, view: &Value) -> usize {
    let part = |name: &str, place: usize| match view {
        Value::Object(parts) => parts.get(name).cloned().unwrap_or_default(),
        _ => view.get(place).cloned().unwrap_or_default(),
    };
    let events = part("events", 1);
    let views = events.as_array().unwrap();
    assert_eq!(
        batch.dp_rank.map(|rank| u64::from(rank.0)),
        part("data_parallel_rank", 2).as_u64()
    );
    assert!(batch.ts_ms.is_some());
    assert_eq!(batch.events.len() + batch.rejected.total(), views.len());
    let rejected: Vec<usize> = batch.rejected.samples().iter().map(|event| event.index).collect();
    let kept = views
        .iter()
        .enumerate()
        .filter(|(index, _)| !rejected.contains(index))
        .map(|(_, view)| view);
    for (event, view) in batch.events.iter().zip(kept) {
        let name = view
            .get("type")
            .or_else(|| view.get(0))
            .and_then(Value::as_str)
            .unwrap();
        match event {
            BlockEvent::Stored(stored) => {
                assert_eq!(name, "BlockStored");
                compare_stored(stored, view);
            }
            BlockEvent::Removed(removed) => {
                assert_eq!(name, "BlockRemoved");
                assert_eq!(removed.hashes, hashes(view));
            }
            BlockEvent::Cleared => assert_eq!(name, "AllBlocksCleared"),
        }
    }
    views.len()
}

#[test]
fn decodes_every_captured_live_message_as_another_decoder_did() {
    let Some(data) = data() else { return };
    let mut events = 0;
    for path in files(&data.join("captures"), &[".events.jsonl"]) {
        let store_pool = path.to_string_lossy().contains("mooncake-publisher");
        for line in lines(&path) {
            let frames = frames(&line["frames"]);
            let message = live_message(&frames).unwrap();
            assert_eq!(Some(message.sequence), line["decoded"]["seq"].as_u64());
            let batch = decode_batch(message.payload).unwrap();
            events += compare(&batch, &line["decoded"]["batch"]);
            let reasons: Vec<_> = batch
                .rejected
                .samples()
                .iter()
                .map(|event| event.reason)
                .collect();
            let expected = if store_pool {
                vec![RejectReason::StorePool; reasons.len()]
            } else {
                vec![]
            };
            assert_eq!(reasons, expected, "{}", path.display());
        }
    }
    assert!(events > 150, "only {events} events were compared");
}

#[test]
fn decodes_every_captured_replay() {
    let Some(data) = data() else { return };
    let (mut batches, mut ends) = (0, 0);
    for path in files(&data.join("captures"), &[".replay.jsonl"]) {
        for line in lines(&path) {
            let replies = line["replies"].as_array().unwrap();
            // A REQ socket has taken the empty frame off.
            for reply in replies.iter().filter(|_| line["socket"] == "DEALER") {
                let frames = frames(&reply["frames"]);
                match replay_part(&frames).unwrap() {
                    ReplayPart::End => ends += 1,
                    ReplayPart::Batch(message) => {
                        assert_eq!(Some(message.sequence), reply["decoded"]["seq"].as_u64());
                        compare(
                            &decode_batch(message.payload).unwrap(),
                            &reply["decoded"]["batch"],
                        );
                        batches += 1;
                    }
                }
            }
        }
    }
    assert!(
        batches > 50 && ends > 2,
        "only {batches} batches and {ends} ends were compared"
    );
}

#[test]
fn messages_of_every_released_publisher_are_decoded() {
    let Some(data) = data() else { return };
    let mut stored = 0;
    for path in files(&data.join("captures/schemas"), &[".jsonl"]) {
        for line in lines(&path) {
            let frames = frames(&line["frames"]);
            if line["kind"] == "pub" {
                let batch = decode_batch(live_message(&frames).unwrap().payload).unwrap();
                assert_eq!(batch.rejected.samples(), [], "{}", path.display());
                stored += compare(&batch, &line["decoded"]["batch"]);
            } else if let ReplayPart::Batch(message) = replay_part(&frames).unwrap() {
                decode_batch(message.payload).unwrap();
            }
        }
    }
    assert!(stored >= 15, "only {stored} events were compared");
}
