//! Sessions stay with their workers over a swap of the policy and over a restart of the router.

use std::collections::BTreeMap;
use std::path::Path;

use harness::{Fleet, TestRouter, route_all};
use http::StatusCode;
use serde_json::Value;

use crate::{chat, fast_fleet};

/// Enough sessions to exclude equal placement by chance.
const SESSIONS: usize = 24;

/// Keeps what policies remember in a folder, and decides by `session-affinity`.
fn config(folder: &Path, ttl_s: u32, workers: &str) -> String {
    format!(
        "policy-state = \"{}\"\n\n[policies.mine]\nbuiltin = \"session-affinity\"\nparams = {{ ttl-s = {ttl_s} }}\nsessions = 100\n\n\
         {workers}{}",
        folder.display(),
        route_all("mine")
    )
}

/// Returns the workers in the other order, so that they have other ids.
fn reversed(fleet: &Fleet) -> String {
    let tables = fleet.workers_toml();
    let mut tables: Vec<&str> = tables.split_inclusive("\n\n").collect();
    tables.reverse();
    tables.concat()
}

/// Returns the worker of each session.
async fn places(router: &TestRouter) -> BTreeMap<usize, String> {
    let mut places = BTreeMap::new();
    for session in 0..SESSIONS {
        let mut body = chat("hi", false);
        body["user"] = Value::from(format!("user {session}"));
        let answer = router.client.post("/v1/chat/completions", &body).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        places.insert(session, answer.header("x-conductor-worker").to_owned());
    }
    places
}

async fn metric(router: &TestRouter, line: &str) -> bool {
    let page = router.admin.get("/metrics").await.unwrap().text();
    page.lines().any(|found| found == line)
}

#[tokio::test]
async fn sessions_stick_over_a_swap_and_a_restart() {
    let (fleet, folder) = (fast_fleet(3).await, tempfile::tempdir().unwrap());
    let state = folder.path().join("state");
    let workers = fleet.workers_toml();
    let router = TestRouter::start(&config(&state, 600, &workers)).await.unwrap();
    let first = places(&router).await;
    assert_eq!(places(&router).await, first);
    assert!(
        metric(
            &router,
            &format!("conductor_policy_sessions{{policy=\"mine\"}} {SESSIONS}")
        )
        .await
    );

    router.save_config(&config(&state, 300, &workers)).unwrap();
    router
        .admin_shows("/admin/policies", "another version is active", |page| {
            super::mine(page)["swaps"] == 2
        })
        .await;
    assert_eq!(places(&router).await, first, "after a swap");
    router.stop().await.unwrap();
    assert!(state.join("mine.state").is_file());

    let router = TestRouter::start(&config(&state, 300, &reversed(&fleet)))
        .await
        .unwrap();
    assert_eq!(places(&router).await, first, "after a restart");
    router.stop().await.unwrap();
}

#[tokio::test]
async fn sessions_of_a_policy_that_comes_back_by_a_reload_are_known_with_it() {
    let (fleet, folder) = (fast_fleet(3).await, tempfile::tempdir().unwrap());
    let with = config(folder.path(), 600, &fleet.workers_toml());
    let router = TestRouter::start(&with).await.unwrap();
    let first = places(&router).await;
    router.stop().await.unwrap();

    let without = with.replace("policy = \"mine\"", "policy = \"round-robin\"");
    let without = without.replace("[policies.mine]", "[policies.other]");
    let router = TestRouter::start(&without).await.unwrap();
    router.save_config(&with).unwrap();
    router
        .admin_shows("/admin/policies", "it is there", |page| {
            super::mine(page)["version"].is_string()
        })
        .await;
    assert_eq!(places(&router).await, first);
    router.stop().await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_put_aside_and_the_router_serves() {
    let (fleet, folder) = (fast_fleet(1).await, tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("mine.state"), "nonsense").unwrap();
    let router = TestRouter::start(&config(folder.path(), 600, &fleet.workers_toml()))
        .await
        .unwrap();
    places(&router).await;
    assert!(metric(&router, "conductor_policy_state_damaged_total 1").await);
    let aside = std::fs::read_to_string(folder.path().join("mine.state.damaged"));
    assert_eq!(aside.unwrap(), "nonsense");
    router.stop().await.unwrap();

    // The file that replaced it is read at the next start.
    let again = TestRouter::start(&config(folder.path(), 600, &fleet.workers_toml()))
        .await
        .unwrap();
    places(&again).await;
    assert!(metric(&again, "conductor_policy_state_damaged_total 0").await);
    assert!(folder.path().join("mine.state").exists());
    again.stop().await.unwrap();
}
