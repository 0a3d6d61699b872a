//! Every capture replayed to its end: the index then holds the blocks that the capture's own readable form leaves, and
//! a replay from 0 leaves the same. `captures.rs` compares with the engine's answers on the way.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod naive;
mod recording;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use kv_index::{Holder, IndexLimits, SharedPrefixIndex};
use naive::model::Asked;
use naive::oracle::rank_depths;
use recording::{captures, events, lines, replayed};
use routing::{BlockEvent, DpRank, WorkerId};
use serde_json::Value;

const WORKER: WorkerId = WorkerId(3);
const HOLDER: Holder = Holder {
    worker: WORKER,
    rank: DpRank(0),
};

/// Content of a capture's readable form, read without our decoder.
#[derive(Default)]
struct CapturedState {
    /// Chains by name: the names from the root to it, its prompt, its adapter and salt.
    chains: HashMap<u64, (Vec<u64>, Asked)>,
    held: BTreeSet<u64>,
    block_size: usize,
}

/// Returns a field of an event, which is a map, or an array in the order given here.
fn field<'a>(event: &'a Value, name: &str) -> &'a Value {
    const STORED: [&str; 6] = [
        "type",
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
    ];
    match STORED.iter().position(|known| *known == name) {
        Some(at) if event.is_array() => &event[at],
        _ => &event[name],
    }
}

/// Returns the last 8 bytes of a long hash, as vLLM itself shortens it.
fn name(hash: &Value) -> u64 {
    match hash["$bin"].as_str() {
        Some(hex) => u64::from_str_radix(&hex[hex.len() - 16..], 16).unwrap(),
        None => hash.as_u64().unwrap(),
    }
}

impl CapturedState {
    fn apply(&mut self, event: &Value) {
        let names = || field(event, "block_hashes").as_array().unwrap().iter().map(name);
        match field(event, "type").as_str().unwrap() {
            "BlockStored" => self.store(event, names()),
            "BlockRemoved" => self.held.retain(|held| !names().any(|gone| gone == *held)),
            "AllBlocksCleared" => self.held.clear(),
            other => panic!("`{other}` is in no capture"),
        }
    }

    fn store(&mut self, event: &Value, names: impl Iterator<Item = u64>) {
        let parent = field(event, "parent_block_hash");
        let (mut chain, mut queried) = if parent.is_null() {
            let lora = event["lora_name"].as_str();
            let keys = event["extra_keys"][0].as_array().into_iter().flatten();
            let salt = keys.filter_map(Value::as_str).find(|key| Some(*key) != lora);
            let queried = Asked {
                tokens: Vec::new(),
                lora: lora.map(str::to_owned),
                salt: salt.map(str::to_owned),
            };
            (Vec::new(), queried)
        } else {
            self.chains[&name(parent)].clone()
        };
        let tokens: Vec<u32> = field(event, "token_ids")
            .as_array()
            .unwrap()
            .iter()
            .map(|token| u32::try_from(token.as_u64().unwrap()).unwrap())
            .collect();
        self.block_size = usize::try_from(field(event, "block_size").as_u64().unwrap()).unwrap();
        for (name, tokens) in names.zip(tokens.chunks_exact(self.block_size)) {
            chain.push(name);
            queried.tokens.extend(tokens);
            self.chains.insert(name, (chain.clone(), queried.clone()));
            self.held.insert(name);
        }
    }

    /// Checks the index's answer for every prompt that was ever stored.
    fn check(&self, index: &SharedPrefixIndex, what: &str) {
        assert_eq!(index.held_blocks(WORKER), self.held.len() as u64, "{what}");
        for (chain, queried) in self.chains.values() {
            let left = chain.iter().take_while(|name| self.held.contains(name)).count();
            let expected = [u32::try_from(left * self.block_size).unwrap(); 3];
            let found = rank_depths(index, queried, &[WORKER]).unwrap();
            assert_eq!(
                found.get(&HOLDER).copied().unwrap_or_default(),
                expected,
                "{what}: {queried:?}"
            );
        }
    }
}

fn index_of(events: impl Iterator<Item = BlockEvent>) -> SharedPrefixIndex {
    let index = SharedPrefixIndex::new(IndexLimits { max_blocks: 1 << 20 });
    for event in events {
        index.apply(HOLDER, &event);
    }
    index
}

/// Replays the events of one publisher of a capture. Returns the number of blocks that are left.
fn live(folder: &Path, capture: &str, source: &str) -> usize {
    let of_source = |line: &Value| line["src"].as_str().unwrap().ends_with(source);
    let lines = lines(&folder.join(format!("{capture}.events.jsonl")));
    let lines: Vec<Value> = lines.into_iter().filter(of_source).collect();
    let mut reported = CapturedState::default();
    for event in lines
        .iter()
        .flat_map(|line| line["decoded"]["batch"][1].as_array().unwrap())
    {
        reported.apply(event);
    }
    reported.check(&index_of(lines.iter().flat_map(events)), capture);
    reported.held.len()
}

/// Checks the same claim from the capture's first whole replay.
fn replay(folder: &Path, capture: &str) -> usize {
    let exchanges = lines(&folder.join(format!("{capture}.replay.jsonl")));
    let whole = |exchange: &&Value| exchange["start_seq"] == 0 && exchange["n_replies"].as_u64() > Some(1);
    let exchange = exchanges.iter().find(whole).unwrap();
    let replies = exchange["replies"].as_array().unwrap();
    let mut reported = CapturedState::default();
    let batches = replies
        .iter()
        .filter_map(|reply| reply["decoded"]["batch"][1].as_array());
    for event in batches.flatten() {
        reported.apply(event);
    }
    reported.check(&index_of(replies.iter().flat_map(replayed)), capture);
    reported.held.len()
}

#[test]
fn the_index_ends_with_the_blocks_of_each_captured_publisher() {
    let Some(folder) = captures() else { return };
    // The vLLM captures end with one prompt after a reset, and the mocker's 80 blocks are nearly full.
    for (capture, source, left) in [
        ("vllm-sha256-int", "", 4),
        ("vllm-sha256_cbor-bytes-lora", "", 4),
        ("pd/nixl", ":5557", 6),
        ("pd/nixl", ":5567", 10),
        ("pd/mooncake", ":5557", 19),
        ("pd/mooncake", ":5567", 16),
        ("mocker/dynamo-mocker-1.3.1", "", 63),
    ] {
        assert_eq!(live(&folder, capture, source), left, "{capture}{source}");
    }
}

#[test]
fn a_replay_from_the_start_leaves_the_same() {
    let Some(folder) = captures() else { return };
    // The last one's subscriber came after the first batch, which only the replay has.
    for (capture, left) in [
        ("vllm-sha256-int", 4),
        ("vllm-sha256_cbor-bytes-lora", 4),
        ("mocker/dynamo-mocker-1.3.1", 63),
        ("pd/nixl", 13),
    ] {
        assert_eq!(replay(&folder, capture), left, "{capture}");
    }
}

/// Made by the publisher classes of older and other engines: 3 blocks, one more on the host under another adapter, the
/// first 3 but one removed, all cleared, and in some one last block of an unknown parent.
#[test]
fn every_layout_of_events_leads_to_the_same_blocks() {
    let Some(folder) = captures() else { return };
    let versions = [
        "vllm-0.11.2",
        "vllm-0.20.2",
        "vllm-0.26.0",
        "sglang-0.5.6",
        "sglang-0.5.23",
    ];
    for version in versions {
        let lines = lines(&folder.join(format!("schemas/{version}.jsonl")));
        let published: Vec<BlockEvent> = lines
            .iter()
            .filter(|line| line["kind"] == "pub")
            .flat_map(events)
            .collect();
        let at = published
            .iter()
            .position(|event| *event == BlockEvent::Cleared)
            .unwrap();
        let before = index_of(published[..at].iter().cloned());
        assert_eq!(before.held_blocks(WORKER), 2, "{version}");
        let queried = Asked {
            tokens: (0..12).collect(),
            lora: None,
            salt: None,
        };
        assert_eq!(
            rank_depths(&before, &queried, &[WORKER]).unwrap()[&HOLDER],
            [4; 3],
            "{version}"
        );
        let after = index_of(published.into_iter());
        assert_eq!(after.held_blocks(WORKER), 0, "{version}");
    }
}
