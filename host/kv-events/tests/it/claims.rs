//! Claims that hold for every decoder and any bytes. The fuzz targets (`fuzz/`) make the same claims.

use kv_events::{DecodedPayload, ObjectKeyError, RejectReason, ReplayPart, decode_batch, decode_objects};
use kv_events::{fingerprint, live_message, parse_object_key, replay_part};
use routing::{BlockEvent, ObjectEvent, Shard, StoreObject, StoredBlocks, Tier};

/// Checks an engine's payload: every store has the tokens of its blocks and nothing more.
pub(crate) fn batch(payload: &[u8]) {
    let _ = fingerprint(payload);
    let Ok(batch) = decode_batch(payload) else { return };
    outside_the_events(&batch, payload);
    for event in &batch.events {
        if let BlockEvent::Stored(stored) = event {
            whole(stored, payload);
        }
    }
}

fn whole(stored: &StoredBlocks, payload: &[u8]) {
    let width = usize::try_from(stored.block_size).expect("a width of tokens that are there");
    assert!(width > 0);
    assert_eq!(stored.hashes.len() * width, stored.tokens.len());
    assert!(stored.tokens.len() <= payload.len());
    assert!(stored.extra_keys.is_empty() || stored.extra_keys.len() == stored.hashes.len());
}

/// Checks a store's payload: an object is stored on a tier that a store has.
pub(crate) fn objects(payload: &[u8]) {
    let Ok(batch) = decode_objects(payload) else {
        return;
    };
    outside_the_events(&batch, payload);
    for event in &batch.events {
        if let ObjectEvent::Stored { tier, .. } = event {
            assert!(matches!(tier, Tier::Host | Tier::Disk));
        }
    }
}

fn outside_the_events<E>(batch: &DecodedPayload<E>, payload: &[u8]) {
    assert!(batch.events.len() + batch.rejected.total() <= payload.len());
    assert!(batch.ts_ms.is_none_or(f64::is_finite));
    let samples = batch.rejected.samples();
    assert!(samples.is_sorted_by(|one, next| one.index < next.index));
    let counted: usize = batch.rejected.by_reason().map(|(_, events)| events).sum();
    assert_eq!(batch.rejected.total(), counted);
    for rejected in samples {
        assert_eq!(
            RejectReason::ALL.get(rejected.reason as usize),
            Some(&rejected.reason)
        );
    }
}

/// Frames, cut from the bytes after a length byte each: what is a live message is a part of a replay too.
pub(crate) fn frames(mut bytes: &[u8]) {
    let mut frames = Vec::new();
    while let Some((&length, rest)) = bytes.split_first() {
        let (frame, rest) = rest.split_at(usize::from(length).min(rest.len()));
        frames.push(frame);
        bytes = rest;
    }
    let part = replay_part(&frames);
    if let Ok(message) = live_message(&frames) {
        assert_eq!(part, Ok(ReplayPart::Batch(message)));
    }
    if part.is_ok() {
        assert!(matches!(frames.len(), 3 | 4));
    }
}

/// Checks a key: the parsed key can be written again, with the same meaning.
pub(crate) fn object_key(key: &str) {
    let Ok(object) = parse_object_key(key) else { return };
    // A model with these in it may end in what looks like a part of the other grammar.
    if !object.model.contains(['@', '_', ':']) {
        for spelt in spellings(&object) {
            assert_eq!(parse_object_key(&spelt), Ok(object.clone()), "{spelt}");
        }
    }
    let doubled = format!("{key}@");
    assert!(matches!(
        parse_object_key(&doubled),
        Err(ObjectKeyError::Unknown | ObjectKeyError::Bad | ObjectKeyError::Sidecar)
    ));
}

/// Keys of the object in the grammars that can express all of it.
fn spellings(object: &StoreObject) -> Vec<String> {
    let StoreObject { model, block, shard } = object;
    let Shard {
        tensor,
        pipeline,
        prefill_context,
        decode_context,
        group,
        layer,
        part,
    } = *shard;
    let hash = block.0;
    let mut spellings = Vec::new();
    if part == 0 && !model.is_empty() {
        spellings.push(format!(
            "{model}@tp_rank:{tensor}@pcp{prefill_context}@dcp{decode_context}@pp_rank:{pipeline}@group:{group}@layer_id:{layer}@{hash:016x}"
        ));
    }
    if (prefill_context, decode_context, group, layer) == (0, 0, 0, 0) {
        let part = if part == 0 { 'k' } else { 'v' };
        let prefix = if model.is_empty() {
            String::new()
        } else {
            format!("{model}_")
        };
        spellings.push(format!("{prefix}{hash:016x}{:048}_{tensor}_{pipeline}_{part}", 0));
    }
    spellings
}
