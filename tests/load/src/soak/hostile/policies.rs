//! Hostile files in the folder of policies: components that misbehave once they serve, and bytes that are none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use harness::{HOSTILE, Random, sends_to};
use tokio::task::JoinSet;

use super::field::Field;
use super::setup::{POLICY, place};

const EXCHANGE_EVERY: Duration = Duration::from_secs(5);
const ATTACK: &str = "policy files";

pub(super) fn spawn(attacks: &mut JoinSet<()>, field: &Arc<Field>, folder: &Path, seed: u64) -> Result<()> {
    let mut files = vec![("good", sends_to(0, 1)?)];
    for hostile in HOSTILE {
        files.push((hostile.name, hostile.component()?));
    }
    let whole = sends_to(0, 2)?;
    files.push(("torn", whole[..whole.len() / 2].to_vec()));
    let mut random = Random::new(seed);
    files.push(("noise", (0..4 << 20).map(|_| random.below(256) as u8).collect()));
    attacks.spawn(exchange(Arc::clone(field), folder.to_owned(), files));
    Ok(())
}

/// Replaces one file by the next, one after the other.
async fn exchange(field: Arc<Field>, folder: PathBuf, files: Vec<(&'static str, Vec<u8>)>) {
    for (name, component) in files.iter().cycle() {
        // The disk may be full: the active policy stays.
        if place(&folder, POLICY, component).is_ok() {
            field.saw(ATTACK, *name);
        }
        tokio::time::sleep(EXCHANGE_EVERY).await;
    }
}
