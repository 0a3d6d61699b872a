//! Deployment to all routers of a fleet, over a real `nats-server`, where one is installed.

use std::fs;

use harness::{Fleet, TestRouter, sends_to};
use nats_server::NatsSite;
use serde_json::{Value, json};

use crate::{ROUND_ROBIN, change, component, config, fleet, page, policy};

async fn router(site: &NatsSite, name: &str, engines: &Fleet) -> TestRouter {
    let table = format!("[replicas]\nservers = [\"{}\"]\nname = \"{name}\"", site.url());
    TestRouter::start(&config(engines, "", &table, ROUND_ROBIN))
        .await
        .unwrap()
}

/// Waits until the page of the policies has this of `mine`.
async fn shows(router: &TestRouter, what: &str, look: impl Fn(&Value) -> bool) {
    let mine = |page: &Value| {
        let mut policies = page["policies"].as_array().into_iter().flatten();
        policies.any(|policy| policy["name"] == "mine" && look(policy))
    };
    router.admin_shows("/admin/policies", what, mine).await;
}

#[tokio::test]
async fn bytes_that_one_router_of_a_fleet_rolled_back_are_deployed_at_none_of_its_routers() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else { return };
    let (engines, folder) = (fleet().await, tempfile::tempdir().unwrap());
    let (good, bad) = (sends_to(0, 1).unwrap(), sends_to(0, 2).unwrap());
    let one = router(&site, "one", &engines).await;
    let two = router(&site, "two", &engines).await;
    for router in [&one, &two] {
        router.save_policy("mine", &good).unwrap();
        shows(router, "it is loaded", |policy| policy["sha256"].is_string()).await;
        router
            .admin_shows("/admin/replicas", "it agrees with the other", |page| {
                page["agreement"]["synced"] == true && page["others"][0]["state"] == "ready"
            })
            .await;
    }
    one.save_policy("mine", &bad).unwrap();
    shows(&one, "the bad bytes are loaded", |policy| policy["swaps"] == 2).await;
    let (status, report) = change(&one, "rollback", &Value::Null).await;
    assert_eq!(status, 200, "{report}");
    // The other one never had them.
    two.admin_shows("/admin/replicas", "both follow the rollback", |page| {
        let entry = &page["agreement"]["entries"][0];
        let states = entry["routers"].as_object().into_iter().flatten();
        entry["kind"] == "hold" && states.filter(|(_, state)| *state == "applied").count() == 2
    })
    .await;

    let file = component(folder.path(), 2);
    for canary in [&["--shadow"][..], &["--canary", "5"]] {
        let mut args = vec!["deploy", &file, "--admin", two.admin.base()];
        args.extend(canary);
        let run = policy(&one, &args).await;
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stderr.contains("rolled these bytes back"), "{run:?}");
        for (router, bytes) in [(&one, &bad), (&two, &good)] {
            assert!(fs::read(router.path("policies/mine.wasm")).unwrap() == *bytes);
            let route = &page(router).await["routes"][0];
            assert_eq!((&route["shadows"], &route["canaries"]), (&json!([]), &json!({})));
        }
    }
}
