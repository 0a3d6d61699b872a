//! Reads the captures of real engines that lie beside the project; see `manifest.json` there for their form.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};

use kv_events::{ReplayPart, decode_batch, live_message, replay_part};
use routing::BlockEvent;
use serde_json::Value;

/// Returns the folder of the captures. If there is none, prints that.
pub(crate) fn captures() -> Option<PathBuf> {
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

pub(crate) fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn frames(line: &Value) -> Vec<Vec<u8>> {
    let unhex = |hex: &Value| -> Vec<u8> {
        let hex = hex.as_str().unwrap();
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    };
    line["frames"].as_array().unwrap().iter().map(unhex).collect()
}

/// Returns the events of one live message.
pub(crate) fn events(line: &Value) -> Vec<BlockEvent> {
    decode_batch(live_message(&frames(line)).unwrap().payload)
        .unwrap()
        .events
}

/// Returns the events of one reply of a replay; none for the end marker.
pub(crate) fn replayed(reply: &Value) -> Vec<BlockEvent> {
    match replay_part(&frames(reply)).unwrap() {
        ReplayPart::Batch(part) => decode_batch(part.payload).unwrap().events,
        ReplayPart::End => Vec::new(),
    }
}
