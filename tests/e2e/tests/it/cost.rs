//! Measured costs of workers, learnt in service and available to policies.

use std::cell::Cell;

use futures_util::future::join_all;
use harness::{Fleet, TestRouter, eventually_ok};
use mock_engine::{CostModel, MockConfig};
use serde_json::json;

use crate::router_with;

/// Configures engines of the same configured properties. All but the first compute prompts five times slower.
fn unlike(number: usize, config: &mut MockConfig) {
    config.cost = CostModel {
        prefill_token_ms: if number == 0 { 0.1 } else { 0.5 },
        prefill_quadratic_ms: 0.0,
        ..CostModel::default()
    };
}

/// Sends so many prompts of each of so many clients, each client's one after the other. Returns their workers.
async fn served(router: &TestRouter, clients: usize, each: usize, round: usize) -> Vec<String> {
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
    join_all((0..clients).map(client)).await.concat()
}

#[tokio::test]
async fn a_slow_worker_is_found_out_and_gets_nothing_while_a_fast_one_is_idle() {
    let fleet = Fleet::start(2, unlike).await.unwrap();
    let policy = "[policies.measured]\nbuiltin = \"cache-aware\"\nparams = { measured-speed = true }\n";
    let router = router_with(policy, &fleet, "measured").await;
    let round = Cell::new(0);
    eventually_ok("all go to the fast worker", || async {
        round.set(round.get() + 2);
        // Both workers get some. A stall of the machine is in the times of few of them.
        served(&router, 2, 32, round.get()).await;
        // One at a time: without measured costs both idle workers are equal.
        let workers = served(&router, 1, 16, round.get() + 1).await;
        match workers.iter().all(|worker| worker == "w0") {
            true => Ok(()),
            false => Err(workers),
        }
    })
    .await;
}
