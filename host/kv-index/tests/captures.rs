//! Real engines as witnesses: a capture's events are applied in time, and before each captured request the index must
//! predict what the engine then reported as `cached_tokens`. Needs the captures of `/work/shared` beside the project.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod naive;
mod recording;

use std::path::Path;

use kv_index::{Holder, IndexLimits, SharedPrefixIndex};
use naive::model::Asked;
use naive::oracle::rank_depths;
use recording::{captures, events, lines};
use routing::{DpRank, WorkerId};
use serde_json::Value;

const BLOCK: usize = 32;

const HOLDER: Holder = Holder {
    worker: WorkerId(1),
    rank: DpRank(0),
};

/// Returns the prompts' token ids as the engine used them; several for a batch request.
fn prompts(response: &Value) -> Vec<Vec<u32>> {
    let of = |holder: &Value| {
        let ids = holder["prompt_token_ids"].as_array()?;
        Some(
            ids.iter()
                .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
                .collect(),
        )
    };
    match of(response) {
        Some(prompt) => vec![prompt],
        None => response["choices"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(of)
            .collect(),
    }
}

struct Replay {
    index: SharedPrefixIndex,
    compared: usize,
    hits: u64,
}

impl Replay {
    /// Returns the engine's expected report. The engine always computes the last token again, so at least that block.
    fn predicted(&self, request: &Value, prompts: &[Vec<u32>]) -> u64 {
        let model = request["model"].as_str().unwrap();
        let query = |prompt: &[u32]| {
            let queried = Asked {
                tokens: prompt.to_vec(),
                lora: (model != "tiny").then(|| model.to_owned()),
                salt: request["cache_salt"].as_str().map(str::to_owned),
            };
            let device = rank_depths(&self.index, &queried, &[HOLDER.worker])
                .unwrap()
                .get(&HOLDER)
                .map_or(0, |depths| depths[0]);
            u64::from(device).min(((prompt.len() - 1) / BLOCK * BLOCK) as u64)
        };
        prompts.iter().map(|prompt| query(prompt)).sum()
    }

    fn compare(&mut self, line: &Value) {
        let response = &line["response"];
        let cached = response["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
        let (Some(cached), prompts) = (cached, prompts(response)) else {
            return;
        };
        let label = line["label"].as_str().unwrap();
        // The engine reports a reset only with its next step, so an index cannot know it here yet.
        if prompts.is_empty() || label == "P0 after reset" {
            return;
        }
        assert_eq!(self.predicted(&line["request"], &prompts), cached, "{label}");
        self.compared += 1;
        self.hits += cached;
    }
}

/// Replays one capture of one engine; answers how many requests were compared and their cached tokens.
fn replay(folder: &Path, name: &str, source: &str, leg: &str) -> (usize, u64) {
    let index = SharedPrefixIndex::new(IndexLimits { max_blocks: 1 << 20 });
    let mut replay = Replay {
        index,
        compared: 0,
        hits: 0,
    };
    let events_of = lines(&folder.join(format!("{name}.events.jsonl")))
        .into_iter()
        .filter(|line| line["src"].as_str().unwrap().ends_with(source));
    let requests = lines(&folder.join(format!("{name}.requests.jsonl")))
        .into_iter()
        .filter(|line| line["label"].as_str().unwrap().ends_with(leg));
    let mut moments: Vec<(f64, bool, Value)> = events_of
        .map(|line| (line["t"].as_f64().unwrap(), true, line))
        .collect();
    moments.extend(requests.map(|line| (line["t"].as_f64().unwrap(), false, line)));
    moments.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (_, is_event, line) in &moments {
        if *is_event {
            for event in events(line) {
                replay.index.apply(HOLDER, &event);
            }
        } else {
            replay.compare(line);
        }
    }
    let applied = replay.index.stats().applied;
    assert_eq!(
        (
            applied.unknown_parent,
            applied.absent,
            applied.ambiguous,
            applied.malformed
        ),
        (0, 0, 0, 0)
    );
    (replay.compared, replay.hits)
}

#[test]
fn cached_tokens_of_an_engine_are_predicted_through_salts_chats_and_evictions() {
    let Some(folder) = captures() else { return };
    let (compared, hits) = replay(&folder, "vllm-sha256-int", "", "");
    assert!(
        compared >= 19 && hits >= 6 * 128,
        "{compared} requests with {hits} cached tokens were compared"
    );
}

#[test]
fn cached_tokens_are_predicted_per_adapter_and_for_hashes_of_32_bytes() {
    let Some(folder) = captures() else { return };
    let (compared, hits) = replay(&folder, "vllm-sha256_cbor-bytes-lora", "", "");
    assert!(
        compared >= 23 && hits >= 8 * 128,
        "{compared} requests with {hits} cached tokens were compared"
    );
}

#[test]
fn cached_tokens_are_predicted_at_a_prefill_node() {
    let Some(folder) = captures() else { return };
    let (compared, _) = replay(&folder, "pd/nixl", ":5557", "prefill");
    assert!(compared >= 3, "only {compared} requests were compared");
}

/// Blocks that the decode node gets over the network count as cached with it: 128 tokens of its own, or the whole
/// prompt.
#[test]
fn cached_tokens_are_predicted_at_the_prefill_node_of_a_mooncake_pair() {
    let Some(folder) = captures() else { return };
    let (compared, hits) = replay(&folder, "pd/mooncake", ":5557", "prefill");
    assert!(
        compared >= 6 && hits >= 256,
        "{compared} requests with {hits} cached tokens were compared"
    );
}

#[test]
fn cached_tokens_are_predicted_at_a_decode_node() {
    let Some(folder) = captures() else { return };
    let (compared, hits) = replay(&folder, "pd/nixl", ":5567", "decode");
    assert!(
        compared >= 3 && hits >= 128,
        "{compared} requests with {hits} cached tokens were compared"
    );
}
