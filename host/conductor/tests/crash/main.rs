//! Tests of sudden ends of the router's process: started again, it serves at once and rebuilds its index from the
//! engines' replays.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::Path;

use harness::{Client, Fleet, RouterProcess, eventually, route_all};
use serde_json::json;

async fn start(config: &Path) -> RouterProcess {
    let process = RouterProcess::start(env!("CARGO_BIN_EXE_conductor"), config).await;
    process.unwrap()
}

/// Returns the tokens of the prompt that the chosen worker is known to hold.
async fn matched(client: &Client) -> u32 {
    let prompt: String = (0..120).map(|word| format!("topic{word} ")).collect();
    let body = json!({ "model": "mock", "prompt": prompt, "max_tokens": 2 });
    let answer = client.post("/v1/completions", &body).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("x-conductor-matched-tokens").parse().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_that_was_killed_serves_at_once_and_rebuilds_its_index() {
    let fleet = Fleet::start(2, |number, config| {
        config.seed = number as u64;
        config.time_scale = 100.0;
    });
    let fleet = fleet.await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("conductor.toml");
    let toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"off\"\n[log]\nformat = \"json\"\n\
         [pools.chat]\ntokenize-timeout = \"10s\"\n{}{}",
        fleet.workers_toml(),
        route_all("cache-aware")
    );
    fs::write(&config, toml).unwrap();

    let first = start(&config).await;
    eventually("the prompt is found where it was computed", || async {
        matched(&first.client).await > 64
    })
    .await;
    let held = blocks(&first.client).await;
    first.kill();

    let second = start(&config).await;
    let answer = second.client.get("/health").await.unwrap();
    assert_eq!(answer.status, 200, "it serves at once");
    eventually("the engines have reported their blocks again", || async {
        blocks(&second.client).await >= held
    })
    .await;
    assert!(matched(&second.client).await > 64, "of what was sent before");
}

/// Returns the number of blocks in the index.
async fn blocks(client: &Client) -> f64 {
    let page = client.get("/metrics").await.unwrap().text();
    let line = page
        .lines()
        .find(|line| line.starts_with("conductor_index_blocks "));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or(0.0)
}
