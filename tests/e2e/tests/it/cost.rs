//! Measured costs of workers, learnt in service and available to policies.

use futures_util::future::join_all;
use harness::{Fleet, TestRouter};
use mock_engine::{CostModel, MockConfig};
use serde_json::json;

use crate::router_with;

const CLIENTS: usize = 2;

/// Configures engines of the same configured properties. All but the first compute prompts five times slower.
fn unlike(number: usize, config: &mut MockConfig) {
    config.cost = CostModel {
        prefill_token_ms: if number == 0 { 0.1 } else { 0.5 },
        prefill_quadratic_ms: 0.0,
        ..CostModel::default()
    };
}

/// Sends so many prompts of each client, one after the other. Returns their workers.
async fn served(router: &TestRouter, each: usize, round: usize) -> Vec<String> {
    let client = |client: usize| async move {
        let mut workers = Vec::new();
        for number in 0..each {
            // Lengths differ, so that a token's cost can be separated from a request's.
            let words = 40 + number * 37 % 160;
            let prompt: String = (0..words)
                .map(|word| format!("r{round}c{client}n{number}w{word} "))
                .collect();
            let body = json!({ "model": "mock", "prompt": prompt, "max_tokens": 1, "stream": true });
            let stream = router.client.open("/v1/completions", &body).await.unwrap();
            let answer = stream.whole().await.unwrap();
            assert!(answer.status.is_success(), "{}", answer.status);
            workers.push(answer.header("x-conductor-worker").to_owned());
        }
        workers
    };
    join_all((0..CLIENTS).map(client)).await.concat()
}

#[tokio::test]
async fn a_slow_worker_is_found_out_and_gets_less() {
    let fleet = Fleet::start(2, unlike).await.unwrap();
    let policy = "[policies.measured]\nbuiltin = \"cache-aware\"\nparams = { measured-speed = true }\n";
    let router = router_with(policy, &fleet, "measured").await;
    served(&router, 32, 0).await;
    let after = served(&router, 16, 1).await;
    let metrics = router.client.get("/metrics").await.unwrap().text();
    let slow = after.iter().filter(|worker| worker.ends_with('1')).count();
    assert!(
        slow <= after.len() / 8,
        "{slow} of {} to the slow one; {metrics}",
        after.len()
    );
}
