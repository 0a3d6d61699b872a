//! Real engines as witnesses: a capture's events are applied in time, and before each captured request the index must
//! predict what the engine then reported as `cached_tokens`. Needs the captures of `/work/shared` beside the project.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};

use kv_events::{decode_batch, live_message};
use kv_index::{Holder, IndexLimits, PrefixQuery, SharedPrefixIndex, WorkerMatch};
use routing::{BlockEvent, DpRank, WorkerId};
use serde_json::Value;

const BLOCK: usize = 32;

fn captures() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(3)?
        .join("shared/data/captures");
    let present = folder.is_dir();
    if !present {
        println!("skipped: no captures at {}", folder.display());
    }
    present.then_some(folder)
}

fn lines(path: PathBuf) -> Vec<Value> {
    fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn events(line: &Value) -> Vec<BlockEvent> {
    let unhex = |hex: &str| -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    };
    let frames: Vec<Vec<u8>> = line["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| unhex(frame.as_str().unwrap()))
        .collect();
    decode_batch(live_message(&frames).unwrap().payload)
        .unwrap()
        .events
}

/// The prompts' token ids as the engine used them; several for a batch request.
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
    /// What the engine would report: it always computes the last token anew, so at least that block.
    fn predicted(&self, request: &Value, prompts: &[Vec<u32>]) -> u64 {
        let model = request["model"].as_str().unwrap();
        let query = |prompt| {
            let mut out: Vec<WorkerMatch> = Vec::new();
            let lora = (model != "tiny").then_some(model);
            let query = PrefixQuery {
                tokens: prompt,
                lora,
                cache_salt: request["cache_salt"].as_str(),
            };
            self.index.matches(&query, &[WorkerId(1)], &mut out);
            u64::from(out[0].device_tokens).min(((prompt.len() - 1) / BLOCK * BLOCK) as u64)
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
        // The engine tells of a reset only with its next step, so an index cannot know it here yet.
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
    let events_of = lines(folder.join(format!("{name}.events.jsonl")))
        .into_iter()
        .filter(|line| line["src"].as_str().unwrap().ends_with(source));
    let requests = lines(folder.join(format!("{name}.requests.jsonl")))
        .into_iter()
        .filter(|line| line["label"].as_str().unwrap().ends_with(leg));
    let mut moments: Vec<(f64, bool, Value)> = events_of
        .map(|line| (line["t"].as_f64().unwrap(), true, line))
        .collect();
    moments.extend(requests.map(|line| (line["t"].as_f64().unwrap(), false, line)));
    moments.sort_by(|a, b| a.0.total_cmp(&b.0));
    let holder = Holder {
        worker: WorkerId(1),
        rank: DpRank(0),
    };
    for (_, is_event, line) in &moments {
        if *is_event {
            for event in events(line) {
                replay.index.apply(holder, &event);
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
fn predicts_the_engines_own_cached_tokens_through_hits_salts_chats_and_evictions() {
    let Some(folder) = captures() else { return };
    let (compared, hits) = replay(&folder, "vllm-sha256-int", "", "");
    assert!(
        compared >= 19 && hits >= 6 * 128,
        "{compared} requests with {hits} cached tokens were compared"
    );
}

#[test]
fn predicts_them_per_adapter_and_for_hashes_of_32_bytes() {
    let Some(folder) = captures() else { return };
    let (compared, hits) = replay(&folder, "vllm-sha256_cbor-bytes-lora", "", "");
    assert!(
        compared >= 23 && hits >= 8 * 128,
        "{compared} requests with {hits} cached tokens were compared"
    );
}

#[test]
fn predicts_them_at_a_prefill_node() {
    let Some(folder) = captures() else { return };
    let (compared, _) = replay(&folder, "pd/nixl", ":5557", "prefill");
    assert!(compared >= 3, "only {compared} requests were compared");
}
