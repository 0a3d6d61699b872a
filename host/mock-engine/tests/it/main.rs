//! The engine from outside, as a client and as a subscriber see it.

mod client;
mod faults;
mod http_shapes;
mod kv_events;
mod life;
mod pd;
mod subscriber;
mod workload;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use mock_engine::{CostModel, MockConfig, MockEngine};

/// Longest wait for anything.
const DEADLINE: Duration = Duration::from_secs(20);

/// Returns an engine whose steps take no time.
fn instant() -> MockConfig {
    MockConfig {
        cost: CostModel::INSTANT,
        block_size: 4,
        cache_blocks: 256,
        answer_tokens: 5,
        ..MockConfig::default()
    }
}

/// Returns an engine whose tokens take a second each, and whose prompts take none.
fn slow() -> MockConfig {
    MockConfig {
        cost: CostModel {
            decode_step_ms: 1000.0,
            ..CostModel::INSTANT
        },
        ..instant()
    }
}

async fn start(config: MockConfig) -> MockEngine {
    MockEngine::start(config).await.expect("an engine")
}

/// Polls until `reached`.
async fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < DEADLINE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns a recorded file, where the research data is at hand.
fn capture(path: &str) -> Option<String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/captures");
    let text = std::fs::read_to_string(root.join(path)).ok();
    if text.is_none() {
        println!("skipped: no recording `{path}` here");
    }
    text
}
