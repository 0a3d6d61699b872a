//! Decisions of a fleet at routers that restart or lose a worker, and of a store that loses bytes, over a real
//! `nats-server`.

use harness::{Fleet, TestRouter, route_all, sends_to};
use http::StatusCode;
use nats_server::NatsSite;
use serde_json::json;

use crate::agreement::{agreed, applied, change, config, router};
use crate::{fast_fleet, worker_of};

fn text(site: &NatsSite, name: &str, engines: &Fleet) -> String {
    config(site, "main", name, engines, &route_all("round-robin"))
}

/// Returns the configuration without the worker `w1`.
fn without_w1(all: &str) -> String {
    let (first, rest) = all.split_once("[[pools.chat.workers]]\nname = \"w1\"").unwrap();
    let (_, routes) = rest.split_once("[[routes]]").unwrap();
    format!("{first}[[routes]]{routes}")
}

async fn drain_w1(router: &TestRouter) {
    let drain = json!({ "pool": "chat", "worker": "w1" });
    let (status, answer) = change(router, "/admin/workers/drain", &drain).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    applied(router, "instance", 2).await;
}

#[tokio::test]
async fn a_restarted_router_serves_once_it_has_the_drains_of_its_fleet() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else { return };
    let engines = fast_fleet(2).await;
    let one = TestRouter::start(&text(&site, "one", &engines)).await.unwrap();
    let two = TestRouter::start(&text(&site, "two", &engines)).await.unwrap();
    agreed(&[&one, &two]).await;
    drain_w1(&one).await;
    two.stop().await.unwrap();
    for _ in 0..3 {
        let two = TestRouter::start_at_once(&text(&site, "two", &engines))
            .await
            .unwrap();
        let mut workers = Vec::new();
        for _ in 0..10 {
            workers.push(worker_of(&two).await);
        }
        let early = two.metric("conductor_replicas_agreed_early_start").await.unwrap();
        // On a busy machine it may not reach the server in time; the wait itself is tested in virtual time.
        if early != Some(1.0) {
            assert_eq!(workers, ["w0"; 10]);
        }
        two.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_router_that_finds_no_server_at_its_start_serves_alone_and_is_counted() {
    let site = NatsSite::new().unwrap();
    let engines = fast_fleet(1).await;
    let one = TestRouter::start(&text(&site, "one", &engines)).await.unwrap();
    assert_eq!(worker_of(&one).await, "w0");
    let early = one.metric("conductor_replicas_agreed_early_start").await.unwrap();
    assert_eq!(early, Some(1.0));
}

#[tokio::test]
async fn a_drained_worker_that_one_router_loses_for_a_while_stays_drained_at_all() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else { return };
    let engines = fast_fleet(2).await;
    let one = TestRouter::start(&text(&site, "one", &engines)).await.unwrap();
    let two = TestRouter::start(&text(&site, "two", &engines)).await.unwrap();
    agreed(&[&one, &two]).await;
    drain_w1(&one).await;
    one.save_config(&without_w1(&text(&site, "one", &engines)))
        .unwrap();
    two.admin_shows(
        "/admin/replicas",
        "one router lost it, the other has it",
        |page| {
            let entry = &page["agreement"]["entries"][0];
            let states = entry["routers"].as_object().into_iter().flatten();
            let states: Vec<&str> = states.filter_map(|(_, state)| state.as_str()).collect();
            let is_lost = states.iter().any(|state| state.starts_with("elsewhere"));
            is_lost && states.contains(&"applied")
        },
    )
    .await;
    one.save_config(&text(&site, "one", &engines)).unwrap();
    let entry = applied(&one, "instance", 2).await;
    assert_eq!(entry["value"]["now"]["drain"], true, "{entry}");
    for router in [&one, &two] {
        for _ in 0..4 {
            assert_eq!(worker_of(router).await, "w0");
        }
    }
}

#[tokio::test]
async fn bytes_that_the_store_lost_come_from_a_router_that_follows_their_decision() {
    let site = NatsSite::new().unwrap();
    let Some(nats) = site.start() else { return };
    let engines = fast_fleet(2).await;
    let mine = sends_to(0, 1).unwrap();
    let one = router(&site, "main", "one", &engines, &mine).await;
    let two = router(&site, "main", "two", &engines, &mine).await;
    one.save_policy("new", &sends_to(1, 1).unwrap()).unwrap();
    agreed(&[&one, &two]).await;
    let half = json!({ "percent": 50 });
    let (status, answer) = change(&one, "/admin/policies/new/canary", &half).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    applied(&two, "route", 2).await;
    // The only router that offered the bytes.
    one.stop().await.unwrap();
    drop(nats);
    site.forget().unwrap();
    let _nats = site.start();
    let three = router(&site, "main", "three", &engines, &mine).await;
    applied(&three, "route", 2).await;
    assert!(three.path("policies/new.wasm").is_file());
}
