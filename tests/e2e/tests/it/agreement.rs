//! Routers that agree on rollbacks, policies of routes and instances over a real `nats-server`, where one is installed.

use bytes::Bytes;
use harness::{Fleet, TestRouter, route_all, sends_to};
use http::{Method, StatusCode};
use nats_server::NatsSite;
use serde_json::{Value, json};

use crate::{chat, fast_fleet, worker_of};

/// Returns the configuration of a router of a fleet. A router on a busy machine is not taken for a silent one.
pub(crate) fn config(site: &NatsSite, fleet: &str, name: &str, engines: &Fleet, route: &str) -> String {
    let key = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/admin.key");
    let workers = engines.workers_toml();
    format!(
        "admin-api-key = {{ file = \"{key}\" }}\n\
         [replicas]\nservers = [\"{}\"]\ndead-after = \"1m\"\nfleet = \"{fleet}\"\nname = \"{name}\"\n\
         {workers}{route}",
        site.url()
    )
}

/// Starts a router with these bytes as the policy `mine`.
pub(crate) async fn router(
    site: &NatsSite,
    fleet: &str,
    name: &str,
    engines: &Fleet,
    mine: &[u8],
) -> TestRouter {
    let first = config(site, fleet, name, engines, &route_all("round-robin"));
    let router = TestRouter::start(&first).await.unwrap();
    router.save_policy("mine", mine).unwrap();
    router
        .save_config(&config(site, fleet, name, engines, &route_all("mine")))
        .unwrap();
    shows_policy(&router, "it is loaded", |policy| policy["sha256"].is_string()).await;
    router
        .admin_shows("/admin/policies", "the route has the policy", |page| {
            page["routes"][0]["policy"] == "mine"
        })
        .await;
    router
}

async fn shows_policy(router: &TestRouter, what: &str, look: impl Fn(&Value) -> bool) -> Value {
    let found = |page: &Value| {
        let policies = page["policies"].as_array().into_iter().flatten();
        let mut named = policies.filter(|policy| policy["name"] == "mine");
        named.next().cloned().unwrap_or_default()
    };
    let page = router.admin_shows("/admin/policies", what, |page| look(&found(page)));
    found(&page.await)
}

/// Waits until the routers of a fleet know each other and their store.
pub(crate) async fn agreed(routers: &[&TestRouter]) {
    for router in routers {
        router
            .admin_shows("/admin/replicas", "it agrees with the others", |page| {
                let others = page["others"].as_array().into_iter().flatten();
                page["agreement"]["synced"] == true
                    && others.filter(|other| other["state"] == "ready").count() == routers.len() - 1
            })
            .await;
    }
}

/// Waits until every router follows the entries of a kind, and returns the only one.
pub(crate) async fn applied(router: &TestRouter, kind: &str, routers: usize) -> Value {
    let of_kind = |page: &Value| -> Vec<Value> {
        let entries = page["agreement"]["entries"].as_array().into_iter().flatten();
        entries.filter(|entry| entry["kind"] == kind).cloned().collect()
    };
    let page = router
        .admin_shows("/admin/replicas", "all routers follow it", |page| {
            let entries = of_kind(page);
            let all = entries.iter().all(|entry| {
                let states = entry["routers"].as_object().into_iter().flatten();
                states.filter(|(_, state)| *state == "applied").count() == routers
            });
            !entries.is_empty() && all
        })
        .await;
    let mut entries = of_kind(&page);
    assert_eq!(entries.len(), 1, "{page}");
    entries.remove(0)
}

/// Calls a page for changes.
pub(crate) async fn change(router: &TestRouter, path: &str, body: &Value) -> (StatusCode, Value) {
    let headers = [("x-api-key", "secret-of-the-tests")];
    let body = Bytes::from(body.to_string());
    let sent = router.admin.stream(Method::POST, path, &headers, body);
    let answer = sent.await.unwrap().whole().await.unwrap();
    (answer.status, answer.json().unwrap())
}

fn id(page: &Value) -> Value {
    page["own"]["router"].clone()
}

#[tokio::test]
async fn a_rollback_is_decided_once_and_obeyed_by_all_routers_of_its_fleet_only() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else { return };
    let engines = fast_fleet(3).await;
    let (good, bad) = (sends_to(0, 1).unwrap(), sends_to(1, 2).unwrap());
    let one = router(&site, "main", "one", &engines, &good).await;
    let two = router(&site, "main", "two", &engines, &good).await;
    // It has never seen the good version: the others have its bytes.
    let three = router(&site, "main", "three", &engines, &bad).await;
    let other = router(&site, "other", "other", &engines, &bad).await;
    for router in [&one, &two] {
        router.save_policy("mine", &bad).unwrap();
        shows_policy(router, "the bad version is active", |policy| policy["swaps"] == 2).await;
    }
    let routers = [&one, &two, &three];
    agreed(&routers).await;
    for router in routers {
        assert_eq!(worker_of(router).await, "w1");
    }

    let (status, report) = change(&one, "/admin/policies/mine/rollback", &Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{report}");
    for router in routers {
        let policy = shows_policy(router, "it went back", |policy| {
            policy["sha256"] == report["sha256"]
        })
        .await;
        assert_eq!(policy["held_back"], report["held_back"], "{policy}");
        assert_eq!(worker_of(router).await, "w0");
    }
    let entry = applied(&two, "hold", 3).await;
    let page = one.admin("/admin/replicas").await.unwrap();
    assert_eq!(entry["by"], id(&page), "one router decided");
    for router in routers {
        let accepted = router
            .metric("conductor_replicas_agreed_accepted_total")
            .await
            .unwrap();
        assert_eq!(
            accepted,
            Some(f64::from(u8::from(
                id(&router.admin("/admin/replicas").await.unwrap()) == entry["by"]
            )))
        );
    }
    assert_eq!(worker_of(&other).await, "w1", "another fleet has nothing of it");
    let page = other.admin("/admin/replicas").await.unwrap();
    assert_eq!(page["agreement"]["entries"], json!([]));

    let (status, report) = change(&two, "/admin/policies/mine/resume", &Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{report}");
    for router in routers {
        shows_policy(router, "it is resumed", |policy| {
            policy["sha256"] == report["sha256"]
        })
        .await;
        assert_eq!(worker_of(router).await, "w1");
    }
}

#[tokio::test]
async fn a_router_that_is_alone_decides_for_itself_and_the_others_follow_when_the_store_returns() {
    let site = NatsSite::new().unwrap();
    let Some(nats) = site.start() else { return };
    let engines = fast_fleet(2).await;
    let (good, bad) = (sends_to(0, 1).unwrap(), sends_to(1, 2).unwrap());
    let one = router(&site, "main", "one", &engines, &good).await;
    let two = router(&site, "main", "two", &engines, &bad).await;
    one.save_policy("mine", &bad).unwrap();
    shows_policy(&one, "the bad version is active", |policy| policy["swaps"] == 2).await;
    agreed(&[&one, &two]).await;
    drop(nats);
    let page = one
        .admin_shows("/admin/replicas", "the store is away", |page| {
            page["agreement"]["synced"] == false
        })
        .await;
    assert!(page["agreement"]["problem"].is_string(), "{page}");
    let (status, report) = change(&one, "/admin/policies/mine/rollback", &Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{report}");
    assert_eq!(
        (worker_of(&one).await, worker_of(&two).await),
        ("w0".to_owned(), "w1".to_owned())
    );
    one.admin_shows("/admin/replicas", "the decision waits", |page| {
        page["agreement"]["proposals"] == 1
    })
    .await;
    let _nats = site.start();
    applied(&one, "hold", 2).await;
    shows_policy(&two, "it went back", |policy| {
        policy["sha256"] == report["sha256"]
    })
    .await;
    assert_eq!(worker_of(&two).await, "w0");
}

#[tokio::test]
async fn a_canary_and_its_promotion_are_taken_by_all_routers_or_by_none() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else { return };
    let engines = fast_fleet(2).await;
    let mine = sends_to(0, 1).unwrap();
    let one = router(&site, "main", "one", &engines, &mine).await;
    let two = router(&site, "main", "two", &engines, &mine).await;
    let three = router(&site, "main", "three", &engines, &mine).await;
    one.save_policy("new", &sends_to(1, 1).unwrap()).unwrap();
    let routers = [&one, &two, &three];
    agreed(&routers).await;
    let half = json!({ "percent": 50 });
    let (status, answer) = change(&one, "/admin/policies/new/canary", &half).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    applied(&one, "route", 3).await;
    for router in routers {
        let page = router.admin("/admin/policies").await.unwrap();
        assert_eq!(page["routes"][0]["canaries"], json!({ "new": 0.5 }), "{page}");
        assert!(router.path("policies/new.wasm").is_file());
    }
    // Another router makes the promotion.
    let (status, answer) = change(&two, "/admin/policies/new/promote", &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    applied(&three, "route", 3).await;
    for router in routers {
        assert_eq!(worker_of(router).await, "w1");
    }

    // A router whose file has another route keeps the others from a change, and is named.
    let other_route = route_all("least-request");
    let toml = config(&site, "main", "stray", &engines, &other_route);
    let stray = TestRouter::start(&toml).await.unwrap();
    agreed(&[&one, &two, &three, &stray]).await;
    let (status, answer) = change(&one, "/admin/policies/new/retract", &json!({})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    assert_eq!(answer["error"]["code"], "fleet_not_ready");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("`stray`"), "{message}");
    for router in routers {
        assert_eq!(worker_of(router).await, "w1");
    }
}

#[tokio::test]
async fn a_change_of_a_route_that_all_routers_get_at_once_is_made_once_and_answered_by_all() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else { return };
    let engines = fast_fleet(2).await;
    let mine = sends_to(0, 1).unwrap();
    let one = router(&site, "main", "one", &engines, &mine).await;
    let two = router(&site, "main", "two", &engines, &mine).await;
    let three = router(&site, "main", "three", &engines, &mine).await;
    let routers = [&one, &two, &three];
    for router in routers {
        router.save_policy("new", &sends_to(1, 1).unwrap()).unwrap();
    }
    agreed(&routers).await;
    for round in 0..4 {
        for (action, body, decides) in [
            ("canary", json!({ "percent": 50 }), "mine"),
            ("promote", json!({}), "new"),
            ("retract", json!({}), "mine"),
        ] {
            let path = format!("/admin/policies/new/{action}");
            let sent = routers.map(|router| change(router, &path, &body));
            for (status, answer) in futures_util::future::join_all(sent).await {
                assert_eq!(status, StatusCode::OK, "{action} of round {round}: {answer}");
                assert_eq!(answer["route"], 1, "{answer}");
            }
            // A router that gets it later finds it made.
            let made = applied(&two, "route", 3).await;
            let (status, answer) = change(&two, &path, &body).await;
            assert_eq!(status, StatusCode::OK, "{action} again: {answer}");
            assert_eq!(applied(&two, "route", 3).await["revision"], made["revision"]);
            for router in routers {
                let page = router.admin("/admin/policies").await.unwrap();
                assert_eq!(page["routes"][0]["policy"], decides, "{action}: {page}");
            }
        }
    }
    let (status, answer) = change(&one, "/admin/policies/new/promote", &json!({})).await;
    assert_eq!(status, StatusCode::CONFLICT, "it is tried no more: {answer}");
}

#[tokio::test]
async fn a_canary_from_before_the_fleet_is_retracted_at_all_its_routers() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else { return };
    let engines = fast_fleet(2).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new.wasm");
    std::fs::write(&file, sends_to(1, 1).unwrap()).unwrap();
    let state = format!("policy-state = \"{}\"\n", folder.path().join("state").display());
    let route = route_all("round-robin");
    // The others have no policy of this name.
    let with_policy = format!("[policies.new]\npath = \"{}\"\n{route}", file.display());
    let in_fleet = format!("{state}{}", config(&site, "main", "one", &engines, &with_policy));
    let (server, tables) = in_fleet.split_once("[replicas]").unwrap();
    let (_, workers) = tables.split_once("name = \"one\"\n").unwrap();
    let alone = TestRouter::start(&format!("{server}{workers}")).await.unwrap();
    let half = json!({ "percent": 50 });
    let (status, answer) = change(&alone, "/admin/policies/new/canary", &half).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    alone.stop().await.unwrap();

    let one = TestRouter::start(&in_fleet).await.unwrap();
    let two = TestRouter::start(&config(&site, "main", "two", &engines, &route))
        .await
        .unwrap();
    agreed(&[&one, &two]).await;
    let page = one.admin("/admin/policies").await.unwrap();
    assert_eq!(page["routes"][0]["canaries"], json!({ "new": 0.5 }), "{page}");
    let (status, answer) = change(&one, "/admin/policies/new/retract", &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    applied(&one, "route", 2).await;
    for router in [&one, &two] {
        let page = router.admin("/admin/policies").await.unwrap();
        assert_eq!(page["routes"][0]["canaries"], json!({}), "{page}");
    }
}

#[tokio::test]
async fn an_instance_that_one_router_adds_drains_or_removes_is_so_at_all() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else { return };
    let (engines, more) = (fast_fleet(1).await, fast_fleet(1).await);
    let mine = sends_to(0, 1).unwrap();
    let one = router(&site, "main", "one", &engines, &mine).await;
    let two = router(&site, "main", "two", &engines, &mine).await;
    agreed(&[&one, &two]).await;
    let instance = more.engines[0].url();
    let added = json!({ "type": "mixed", "instance": instance, "name": "extra" });
    let (status, answer) = change(&one, "/instances/add", &added).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let extra = |page: &Value| -> Option<Value> {
        let workers = page["pools"][0]["workers"].as_array()?;
        workers.iter().find(|worker| worker["name"] == "extra").cloned()
    };
    two.admin_shows("/status", "the instance is there", |page| extra(page).is_some())
        .await;
    let removed = json!({ "instance": instance });
    let (status, answer) = change(&two, "/instances/remove", &removed).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    one.admin_shows("/status", "the instance is gone", |page| extra(page).is_none())
        .await;
    applied(&one, "instance", 2).await;
}

#[tokio::test]
async fn a_worker_whose_entry_of_the_file_changes_or_comes_back_is_drained_no_longer() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else { return };
    let engines = fast_fleet(2).await;
    let text = |name: &str, w1: &str| {
        let text = config(&site, "main", name, &engines, &route_all("round-robin"));
        text.replace("name = \"w1\"\n", &format!("name = \"w1\"\n{w1}"))
    };
    let one = TestRouter::start(&text("one", "")).await.unwrap();
    let two = TestRouter::start(&text("two", "")).await.unwrap();
    agreed(&[&one, &two]).await;
    let overlays = async |router: &TestRouter, overlays: usize| {
        let what = format!("{overlays} instances differ from the file");
        router
            .admin_shows("/admin/config", &what, |page| {
                page["overlays"].as_array().map(Vec::len) == Some(overlays)
            })
            .await;
    };
    let drain = json!({ "pool": "chat", "worker": "w1" });
    let (status, answer) = change(&one, "/admin/workers/drain", &drain).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    overlays(&one, 1).await;
    overlays(&two, 1).await;
    applied(&one, "instance", 2).await;

    one.save_config(&text("one", "weight = 2.0\n")).unwrap();
    overlays(&one, 0).await;
    two.save_config(&text("two", "weight = 2.0\n")).unwrap();
    overlays(&two, 0).await;
    // The decision of the file is the fleet's.
    let entry = applied(&one, "instance", 2).await;
    assert_eq!(entry["value"]["now"]["drain"], false, "{entry}");
    overlays(&one, 0).await;

    let (status, answer) = change(&two, "/admin/workers/drain", &drain).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    overlays(&one, 1).await;
    let workers = async |router: &TestRouter, workers: usize| {
        router
            .admin_shows("/status", "the file's workers are there", |page| {
                page["pools"][0]["workers"].as_array().map(Vec::len) == Some(workers)
            })
            .await;
    };
    for (router, name) in [(&one, "one"), (&two, "two")] {
        let all = text(name, "weight = 2.0\n");
        let (first, rest) = all.split_once("[[pools.chat.workers]]\nname = \"w1\"").unwrap();
        let (_, routes) = rest.split_once("[[routes]]").unwrap();
        router.save_config(&format!("{first}[[routes]]{routes}")).unwrap();
        workers(router, 1).await;
    }
    applied(&one, "instance", 2).await;
    for (router, name) in [(&one, "one"), (&two, "two")] {
        router.save_config(&text(name, "weight = 2.0\n")).unwrap();
        workers(router, 2).await;
        overlays(router, 0).await;
    }
    applied(&one, "instance", 2).await;
}

/// Sends a streamed request of a session. Returns the worker.
async fn session_request(router: &TestRouter, session: usize) -> String {
    let name = format!("session-{session}");
    let headers = [("x-session-id", name.as_str())];
    let body = Bytes::from(chat("hi", true).to_string());
    let sent = router
        .client
        .stream(Method::POST, "/v1/chat/completions", &headers, body);
    let answer = sent.await.unwrap().whole().await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.header("x-conductor-worker").to_owned()
}

/// Returns the canary of the only experiment, as `/admin/trials` has it.
fn canary(page: &Value) -> &Value {
    &page["trials"][0]["arms"][1]
}

#[tokio::test]
async fn a_canary_is_stopped_once_by_the_evidence_of_two_routers_that_neither_has_alone() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else { return };
    let adjust = |number, config: &mut mock_engine::MockConfig| {
        config.time_scale = if number == 1 { 0.5 } else { 100.0 };
    };
    let engines = Fleet::start(2, adjust).await.unwrap();
    let split = |more: &str| {
        format!(
            "{}split = {{ mine = 50, new = 50 }}\ncanary = {{ ttft-margin = 0.5, least = 12{more} }}\n",
            route_all("mine")
        )
    };
    let start = async |fleet: &str, name: &str, more: &str| {
        let router = router(&site, fleet, name, &engines, &sends_to(0, 1).unwrap()).await;
        router.save_policy("new", &sends_to(1, 1).unwrap()).unwrap();
        let toml = config(&site, fleet, name, &engines, &split(more));
        router.save_config(&toml).unwrap();
        let is_tried = |page: &Value| canary(page)["policy"] == "new";
        router
            .admin_shows("/admin/trials", "the canary is tried", is_tried)
            .await;
        router
    };
    // Another fleet's router shows which sessions the canary has. It stops nothing.
    let oracle = start("other", "oracle", ", stop = false").await;
    let (one, two) = (start("main", "one", "").await, start("main", "two", "").await);
    agreed(&[&one, &two]).await;
    let sessions = std::cell::Cell::new(0);
    let next = || sessions.replace(sessions.get() + 1);
    harness::eventually("the canary is stopped at both routers", || async {
        for session in std::iter::repeat_with(next).take(8) {
            // One router has the control's sessions, and the other one the canary's.
            let by_canary = session_request(&oracle, session).await == "w1";
            session_request(if by_canary { &two } else { &one }, session).await;
        }
        let (at_one, at_two) = (one.admin("/admin/trials").await, two.admin("/admin/trials").await);
        [at_one, at_two]
            .iter()
            .all(|page| canary(page.as_ref().unwrap())["state"] == "stopped")
    })
    .await;
    applied(&one, "canary", 2).await;
    for session in std::iter::repeat_with(next).take(8) {
        assert_eq!(
            session_request(&two, session).await,
            "w0",
            "its sessions are the control's"
        );
    }
    let page = oracle.admin("/admin/trials").await.unwrap();
    assert_ne!(canary(&page)["state"], "stopped", "another fleet obeys nothing");
}
