//! Workers are drained, and get requests again.

use harness::{Fleet, TestRouter, route_all};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{at, fleet, router};

#[tokio::test]
async fn a_worker_is_drained_and_resumed() {
    let fleet = fleet().await;
    let router = router(&fleet).await;
    let unknown = at(&router, &["drain", "w9"]).await;
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(unknown.stderr.contains("chat/w0"), "{unknown:?}");
    let drained = at(&router, &["drain", "w0", "--wait", "--reason", "a new driver"]).await;
    assert!(drained.stderr.contains("no requests"), "{drained:?}");
    assert_eq!(drained.code, 0, "{drained:?}");
    let state = |page: &Value, state: &str| {
        let overlays = page["overlays"].as_array().unwrap();
        overlays.iter().any(|overlay| overlay["kind"] == state)
    };
    router
        .admin_shows("/status", "it drains", |page| state(page, "drain"))
        .await;
    let changes = router.admin("/admin/changes").await.unwrap();
    assert_eq!(changes["changes"][0]["by"], "a new driver", "{changes}");
    at(&router, &["resume", "chat/w0"]).await.good();
    router
        .admin_shows("/status", "it gets requests again", |page| !state(page, "drain"))
        .await;
}

#[tokio::test]
async fn a_worker_of_several_ranks_is_drained_by_its_name_until_none_has_requests() {
    let fleet = Fleet::start(1, |_, config| config.dp_ranks = 2).await.unwrap();
    let toml = format!(
        "[[pools.chat.workers]]\nname = \"w0\"\nurl = \"{}\"\nkv-events = \"off\"\n\
         data-parallel = {{ ranks = 2 }}\n{}",
        fleet.engines[0].url(),
        route_all("round-robin")
    );
    let router = TestRouter::start(&toml).await.unwrap();
    let workers = |page: &Value| page["pools"][0]["workers"].as_array().unwrap().clone();
    router
        .admin_shows("/status", "both ranks serve", |page| {
            workers(page).iter().all(|worker| worker["health"] == "ok")
        })
        .await;
    // One request at each rank, until the first command has ended.
    let faults = fleet.engines[0].faults();
    faults.hold_answers();
    let mut sent = JoinSet::new();
    for prompt in ["hello", "bye"] {
        let client = router.client.clone();
        sent.spawn(async move {
            let body = json!({ "model": "mock", "prompt": prompt, "max_tokens": 2 });
            client.post("/v1/completions", &body).await.unwrap().status
        });
    }
    router
        .admin_shows("/status", "each rank has a request", |page| {
            workers(page).iter().all(|worker| worker["load"]["requests"] == 1)
        })
        .await;
    let waiting = ["drain", "chat/w0", "--wait", "--timeout", "0.1"];
    let left = at(&router, &waiting).await;
    assert_eq!(
        (left.code, left.stderr.contains("still has 2 requests")),
        (1, true),
        "{left:?}"
    );
    faults.clear();
    let drained = at(&router, &["drain", "w0@1", "--wait"]).await;
    assert_eq!(drained.code, 0, "{drained:?}");
    assert!(sent.join_all().await.iter().all(|status| *status == 200));
}
