//! Policy swaps and configuration edits under a constant load of streams: no client is affected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use harness::{Client, TestRouter, route_all};
use http::StatusCode;

use crate::{chat, fast_fleet, long_prompt};

const SWAPS: usize = 50;
const EDITS: usize = 50;
const BROKEN_EVERY: usize = 5;
const CLIENTS: usize = 8;

struct Load {
    stop: AtomicBool,
    served: AtomicUsize,
}

/// Sends streams one after another until stopped; every one must end well.
async fn stream_on(client: Client, number: usize, load: Arc<Load>) -> Result<(), String> {
    let mut turn = 0;
    while !load.stop.load(Ordering::Relaxed) {
        turn += 1;
        let mut stream = client
            .open(
                "/v1/chat/completions",
                &chat(&long_prompt(number * 7 + turn % 7), true),
            )
            .await
            .map_err(|error| format!("{error:#}"))?;
        if stream.status != StatusCode::OK {
            return Err(format!("client {number}: {}", stream.status));
        }
        let mut text = String::new();
        while let Some(chunk) = stream
            .chunk()
            .await
            .map_err(|error| format!("client {number}: {error:#}"))?
        {
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
        if !text.ends_with("data: [DONE]\n\n") || text.contains("\"error\"") {
            return Err(format!("client {number}: the stream ended badly: {text}"));
        }
        load.served.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_swaps_and_fifty_edits_fail_no_request() {
    let fleet = fast_fleet(3).await;
    let workers = fleet.workers_toml();
    let config = |policy: &str, generation: usize| {
        let extra = format!("[pools.spare{generation}]\n");
        format!("{workers}{extra}{}", route_all(policy))
    };
    let router = TestRouter::start(&config("round-robin", 0)).await.unwrap();
    let versions: Vec<_> = conductor::builtin::BUILTINS
        .iter()
        .map(|builtin| builtin.bytes)
        .collect();
    router.save_policy("mine", versions[0]).unwrap();
    let swaps = async || {
        let page = router.admin("/admin/policies").await.unwrap_or_default();
        let policies = page["policies"].as_array();
        let mine = policies.and_then(|all| all.iter().find(|policy| policy["name"] == "mine"));
        mine.and_then(|mine| mine["swaps"].as_u64())
    };
    // A file that is saved before would take this one's place while it waits to be compiled.
    harness::eventually("the policy is loaded", || async { swaps().await == Some(1) }).await;

    let load = Arc::new(Load {
        stop: AtomicBool::new(false),
        served: AtomicUsize::new(0),
    });
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(stream_on(router.client.clone(), number, Arc::clone(&load)));
    }

    let mut broken = 0;
    for round in 0..SWAPS.max(EDITS) {
        let served = load.served.load(Ordering::Relaxed);
        router
            .save_policy("mine", versions[(round + 1) % versions.len()])
            .unwrap();
        if round % BROKEN_EVERY == 0 {
            broken += 1;
            router
                .save_config(&format!("{}\n[[routes", config("mine", round)))
                .unwrap();
            router
                .admin_shows("/admin/config", "the mistake is shown", |page| {
                    page["problems"].to_string().contains("line")
                })
                .await;
        } else {
            router.save_config(&config("mine", round)).unwrap();
            router
                .admin_shows("/admin/config", "the edit is active", |page| {
                    page["pools"].to_string().contains(&format!("spare{round}\""))
                })
                .await;
        }
        harness::eventually("the swap is active", || async {
            swaps().await == Some(round as u64 + 2)
        })
        .await;
        harness::eventually("requests go on", || async {
            load.served.load(Ordering::Relaxed) > served
        })
        .await;
    }
    load.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap().unwrap();
    }
    assert_eq!(broken, EDITS / BROKEN_EVERY);
    println!(
        "{SWAPS} swaps and {EDITS} edits ({broken} of them broken) under {CLIENTS} clients: {} streams served, 0 failed",
        load.served.load(Ordering::Relaxed)
    );
}
