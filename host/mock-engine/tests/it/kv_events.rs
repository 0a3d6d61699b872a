//! Tests of published and replayed events.

use std::collections::HashMap;

use mock_engine::{EventForm, HashForm, MockConfig, MockEngine, ReplayForm};
use routing::{BlockEvent, DpRank, EngineBlockHash};
use serde_json::{Value, json};

use crate::client::{complete, post};
use crate::subscriber::{events, kinds, receive, replay, replay_messages, subscribe};
use crate::{capture, instant, start};

/// Returns a prompt of one token repeated, a few blocks long.
fn prompt(token: u32) -> Vec<u32> {
    vec![token; 14]
}

/// Causes events of every kind: salts, adapters, decode-filled blocks, evictions, a reset.
async fn exercise(engine: &MockEngine) {
    for token in [1, 2, 1, 3, 4, 5] {
        complete(engine, &prompt(token), 7).await;
    }
    let salted = json!({"model": "ad", "prompt": prompt(6), "cache_salt": "tenant"});
    post(engine, "/v1/completions", &salted).await;
    assert!(engine.reset_prefix_cache().await);
    complete(engine, &prompt(1), 1).await;
}

fn tight() -> MockConfig {
    MockConfig {
        cache_blocks: 10,
        loras: vec!["ad".to_owned()],
        ..instant()
    }
}

/// Returns a payload without its timestamp: an array of three, then a double.
fn timeless(payload: &[u8]) -> Vec<u8> {
    assert_eq!(payload[..2], [0x93, 0xcb]);
    payload[10..].to_vec()
}

async fn published(config: MockConfig) -> Vec<(u64, Vec<u8>)> {
    let engine = start(config).await;
    exercise(&engine).await;
    let batches = replay(&engine, 0);
    assert_eq!(batches.len() as u64, engine.stats().batches);
    batches
        .into_iter()
        .map(|(seq, payload)| (seq, timeless(&payload)))
        .collect()
}

#[tokio::test]
async fn the_same_requests_give_the_same_bytes() {
    let first = published(tight()).await;
    assert!(first.len() > 10);
    assert_eq!(first, published(tight()).await);
    assert_ne!(
        first,
        published(MockConfig {
            hash_seed: 1,
            ..tight()
        })
        .await
    );
}

/// Returns the remaining blocks after every event so far, counting blocks that were stored more than once.
fn left_over(batches: &[(u64, Vec<u8>)]) -> HashMap<EngineBlockHash, usize> {
    let mut held: HashMap<_, usize> = HashMap::new();
    for (_, payload) in batches {
        let batch = kv_events::decode_batch(payload).expect("a batch");
        assert_eq!((batch.dp_rank, batch.rejected.total()), (Some(DpRank(3)), 0));
        for event in batch.events {
            match event {
                BlockEvent::Stored(stored) => {
                    assert_eq!(
                        stored.tokens.len(),
                        stored.hashes.len() * stored.block_size as usize
                    );
                    assert!(stored.parent.is_none_or(|parent| held.contains_key(&parent)));
                    stored
                        .hashes
                        .iter()
                        .for_each(|&hash| *held.entry(hash).or_default() += 1);
                }
                BlockEvent::Removed(removed) => {
                    removed
                        .hashes
                        .iter()
                        .for_each(|hash| *held.get_mut(hash).expect("held") -= 1);
                    held.retain(|_, copies| *copies > 0);
                }
                BlockEvent::Cleared => held.clear(),
            }
        }
    }
    held
}

#[tokio::test]
async fn the_routers_decoder_learns_what_the_cache_holds() {
    for event_form in [EventForm::Map, EventForm::Array] {
        for hash_form in [HashForm::Int, HashForm::Bytes] {
            let config = MockConfig {
                event_form,
                hash_form,
                dp_rank: 3,
                ..tight()
            };
            let engine = start(config).await;
            exercise(&engine).await;
            complete(&engine, &prompt(9), 1).await;
            let held = left_over(&replay(&engine, 0)).len() as u64;
            assert_eq!((held, held > 3), (engine.stats().blocks_held, true));
        }
    }
}

#[tokio::test]
async fn a_batch_removes_before_it_stores() {
    let engine = start(tight()).await;
    exercise(&engine).await;
    let batches: Vec<_> = replay(&engine, 0)
        .iter()
        .map(|(_, payload)| kinds(payload))
        .collect();
    let both = batches
        .iter()
        .filter(|kinds| kinds.iter().any(|kind| kind == "BlockRemoved"));
    assert!(both.clone().count() > 2);
    for kinds in both {
        assert!(kinds.is_sorted(), "{kinds:?}");
    }
    assert_eq!(engine.stats().evictions > 0, engine.stats().blocks_held > 0);
    assert_eq!(
        batches.last().map(|kinds| kinds[0].as_str()),
        Some("AllBlocksCleared")
    );
}

#[tokio::test]
async fn a_reset_is_announced_with_the_next_step_only() {
    let engine = start(instant()).await;
    complete(&engine, &prompt(1), 1).await;
    assert_eq!(complete(&engine, &prompt(1), 1).await, 12);
    assert!(engine.reset_prefix_cache().await);
    assert_eq!((replay(&engine, 0).len(), engine.stats().blocks_held), (1, 0));
    assert_eq!(complete(&engine, &prompt(1), 1).await, 0);
    let batches = replay(&engine, 1);
    assert_eq!(kinds(&batches[0].1), ["AllBlocksCleared", "BlockStored"]);
}

#[tokio::test]
async fn subscribers_get_what_replays_repeat() {
    let engine = start(instant()).await;
    let (subscription, mut live) = subscribe(&engine).await;
    complete(&engine, &prompt(1), 1).await;
    live.extend(receive(&engine, &subscription));
    let first = u64::from_be_bytes(live[0][1].as_slice().try_into().expect("8 bytes"));
    let mut repeated = replay_messages(&engine, first);
    let end = repeated.pop().expect("an end");
    assert_eq!(end, [&b""[..], b"", &[0xff; 8], b""]);
    for message in &mut live {
        assert_eq!(message[0], b"kv-events");
        message.insert(0, Vec::new());
    }
    assert_eq!(live, repeated);
}

#[tokio::test]
async fn older_engines_reply_with_three_frames_and_arrays() {
    let engine = start(MockConfig {
        event_form: EventForm::Array,
        hash_form: HashForm::Bytes,
        replay_form: ReplayForm::ThreeFrames,
        topic: String::new(),
        ..instant()
    })
    .await;
    complete(&engine, &prompt(1), 1).await;
    let messages = replay_messages(&engine, 0);
    assert_eq!((messages[0].len(), &messages[0][1][..]), (3, &[0; 8][..]));
    assert_eq!(messages[1], [&b""[..], &[0xff; 8], b""]);
    let event = &events(&messages[0][2])[0];
    assert_eq!(event[0].as_str(), Some("BlockStored"));
    assert_eq!(event[1][0].as_slice().map(<[u8]>::len), Some(32));
    assert_eq!(event.as_array().map(Vec::len), Some(10));
}

#[tokio::test]
async fn a_replay_buffer_forgets_its_oldest_batches() {
    let engine = start(MockConfig {
        replay_batches: 2,
        ..instant()
    })
    .await;
    for token in 1..=4 {
        complete(&engine, &prompt(token), 1).await;
    }
    let seqs: Vec<_> = replay(&engine, 0).into_iter().map(|(seq, _)| seq).collect();
    assert_eq!(seqs, [2, 3]);
}

#[tokio::test]
async fn a_silent_engine_publishes_nothing() {
    let engine = start(MockConfig {
        publish_events: false,
        ..instant()
    })
    .await;
    complete(&engine, &prompt(1), 1).await;
    assert_eq!((replay(&engine, 0), engine.stats().batches), (vec![], 0));
}

#[tokio::test]
async fn events_have_the_fields_of_recorded_ones() {
    let engine = start(tight()).await;
    exercise(&engine).await;
    let ours: Vec<_> = replay(&engine, 0)
        .iter()
        .flat_map(|(_, payload)| events(payload))
        .collect();
    let Some(recording) = capture("vllm-sha256-int.events.jsonl") else {
        return;
    };
    let (mut compared, fields) = (0, |map: &rmpv::Value| {
        let entries = map.as_map().expect("a map").iter();
        entries
            .map(|(key, _)| key.as_str().expect("text").to_owned())
            .collect::<Vec<_>>()
    });
    for line in recording.lines() {
        let line: Value = serde_json::from_str(line).expect("json");
        let hex = line["frames"][2].as_str().expect("a payload");
        let digits = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16));
        let payload: Vec<u8> = digits.collect::<Result<_, _>>().expect("hex");
        for theirs in events(&payload) {
            let same_kind = ours.iter().filter(|event| event["type"] == theirs["type"]);
            for event in same_kind {
                assert_eq!(fields(event), fields(&theirs));
                compared += 1;
            }
        }
    }
    assert!(compared > 100);
}

#[tokio::test]
async fn a_restart_begins_again_from_nothing() {
    let engine = start(instant()).await;
    complete(&engine, &prompt(1), 1).await;
    complete(&engine, &prompt(2), 1).await;
    let before = replay(&engine, 0);
    engine.faults().restart(None).await.expect("an engine");
    assert_eq!((replay(&engine, 0), engine.stats().requests), (vec![], 0));
    assert_eq!(complete(&engine, &prompt(1), 1).await, 0);
    let same = replay(&engine, 0);
    assert_eq!((same[0].0, timeless(&same[0].1)), (0, timeless(&before[0].1)));
    engine.faults().restart(Some(9)).await.expect("an engine");
    complete(&engine, &prompt(1), 1).await;
    assert_ne!(timeless(&replay(&engine, 0)[0].1), timeless(&before[0].1));
}
