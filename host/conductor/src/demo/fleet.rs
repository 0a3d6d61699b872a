//! Fleet of the demo: mock engines, and the configuration that names them.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use mock_engine::{MockConfig, MockEngine};

/// Starts mock engines that differ only in their seed.
pub(super) async fn fleet(workers: u16, seed: u64) -> Result<Vec<MockEngine>> {
    let mut engines = Vec::new();
    for number in 0..workers {
        let config = MockConfig {
            seed: seed + u64::from(number),
            ..MockConfig::default()
        };
        engines.push(MockEngine::start(config).await.context("start a mock engine")?);
    }
    Ok(engines)
}

/// Returns the configuration of a router over these engines.
pub(super) fn config(listen: SocketAddr, admin: SocketAddr, fleet: &[MockEngine], policy: &str) -> String {
    let mut text = format!(
        "# The demo's configuration: edit and save it, and watch the log.\npolicy-dir = \"policies\"\n\n\
         [server]\nlisten = \"{listen}\"\nadmin-listen = \"{admin}\"\n\n"
    );
    for (number, engine) in fleet.iter().enumerate() {
        text += &format!(
            "[[pools.demo.workers]]\nname = \"mock-{number}\"\nurl = \"{}\"\nkv-events = \"{}\"\nkv-replay = \"{}\"\n\n",
            engine.url(),
            engine.kv_events(),
            engine.kv_replay(),
        );
    }
    text + &format!("[[routes]]\npool = \"demo\"\npolicy = \"{policy}\"\n")
}
