//! Fleet of the demo: mock engines, and the configuration that names them.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use mock_engine::{MockConfig, MockEngine};
use policy_store::builtin;

/// File of the admin key, beside the configuration.
pub(super) const ADMIN_KEY: &str = "admin.key";
/// Policies on trial beside the default.
pub(super) const CANARY: &str = "cache-aware";
const SHADOW: &str = "round-robin";

/// Starts mock engines that differ only in their seed.
pub(super) async fn fleet(workers: u16, seed: u64) -> Result<Vec<MockEngine>> {
    fleet_of(workers, seed, &MockConfig::default()).await
}

/// Starts mock engines of one configuration that differ only in their seed.
pub(super) async fn fleet_of(workers: u16, seed: u64, engine: &MockConfig) -> Result<Vec<MockEngine>> {
    let mut engines = Vec::new();
    for number in 0..workers {
        let config = MockConfig {
            seed: seed + u64::from(number),
            ..engine.clone()
        };
        engines.push(MockEngine::start(config).await.context("start a mock engine")?);
    }
    Ok(engines)
}

/// Returns the configuration of a router over these engines.
pub(super) fn config(listen: SocketAddr, admin: SocketAddr, fleet: &[MockEngine], policy: &str) -> String {
    let server = format!("[server]\nlisten = \"{listen}\"\nadmin-listen = \"{admin}\"\n\n");
    format!(
        "{server}{}[[routes]]\npool = \"demo\"\npolicy = \"{policy}\"\n",
        workers(fleet)
    )
}

/// Returns the configuration of the demo: besides the above an admin key, a recorded log, a canary and a shadow, so
/// that every page of the dashboard has data.
pub(super) fn demo_config(listen: SocketAddr, admin: SocketAddr, fleet: &[MockEngine]) -> String {
    let policy = builtin::DEFAULT;
    format!(
        "# The demo's configuration: edit and save it, and watch the log.\npolicy-dir = \"policies\"\n\n\
         [record]\nfile = \"decisions.jsonl\"\nsample = 1.0\ncolumns = \"all\"\nprompt-blocks = 16\n\
         max-bytes = \"64MiB\"\nkeep = 1\nexplain-sample = 1.0\n\n\
         [server]\nlisten = \"{listen}\"\nadmin-listen = \"{admin}\"\nadmin-api-key = {{ file = \"{ADMIN_KEY}\" }}\n\n\
         {workers}\
         [[routes]]\npool = \"demo\"\npolicy = \"{policy}\"\nsplit = {{ \"{policy}\" = 80, \"{CANARY}\" = 20 }}\n\
         canary = {{ least = 100 }}\nshadow = [\"{SHADOW}\"]\nshadow-sample = 1.0\n",
        workers = workers(fleet),
    )
}

/// Returns the configuration of a router that records every request into a file of this folder.
pub(super) fn recording_config(fleet: &[MockEngine], log: &Path) -> String {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    format!(
        "[record]\nfile = {log:?}\nsample = 1.0\nprompt-blocks = 16\nmax-bytes = \"1GiB\"\n\n{}",
        config(any, any, fleet, builtin::DEFAULT),
        log = log.display().to_string(),
    )
}

/// Returns the tables of the workers.
fn workers(fleet: &[MockEngine]) -> String {
    let mut text = String::new();
    for (number, engine) in fleet.iter().enumerate() {
        text += &format!(
            "[[pools.demo.workers]]\nname = \"mock-{number}\"\nurl = \"{}\"\nkv-events = \"{}\"\nkv-replay = \"{}\"\n\n",
            engine.url(),
            engine.kv_events(),
            engine.kv_replay(),
        );
    }
    text
}
