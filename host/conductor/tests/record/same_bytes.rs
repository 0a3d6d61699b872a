//! Policies of the same bytes in a decision log: each decision has the name, the parameters and the version of its
//! policy.

use std::collections::BTreeSet;
use std::fs;

use harness::{Fleet, TestRouter};
use http::StatusCode;
use serde_json::{Value, json};

use super::{chat, complete, conductor, fast_fleet, replay, written};

const COMPONENT: &str = "load-weighted";

/// Returns the configuration of a policy of these bytes.
fn policy(name: &str, request_tokens: u32) -> String {
    format!(
        "[policies.{name}]\nbuiltin = \"{COMPONENT}\"\nparams = {{ request-tokens = {request_tokens} }}\n"
    )
}

/// Returns a configuration that records all requests.
fn config(fleet: &Fleet, policies: &str, routes: &str) -> String {
    let record = "[record]\nfile = \"decisions.jsonl\"\nsample = 1.0\n";
    format!("{record}{policies}{}{routes}", fleet.workers_toml())
}

/// Returns the id of a policy's active version.
async fn version(router: &TestRouter, name: &str) -> String {
    let page = router.admin("/admin/policies").await.unwrap();
    let policies = page["policies"].as_array().unwrap();
    let policy = policies.iter().find(|policy| policy["name"] == name).unwrap();
    policy["version"].as_str().unwrap().to_owned()
}

/// Returns the `policy` lines of the log, which must be of the same bytes.
fn described(router: &TestRouter) -> Vec<Value> {
    let text = fs::read_to_string(router.path("decisions.jsonl")).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let policies: Vec<Value> = lines.filter_map(|line| line.get("policy").cloned()).collect();
    let bytes: BTreeSet<&str> = policies
        .iter()
        .map(|line| line["sha256"].as_str().unwrap())
        .collect();
    assert_eq!(bytes.len(), 1, "{policies:?}");
    policies
}

/// Checks that an ended request was placed by this version of a policy.
async fn explained(router: &TestRouter, id: &str, name: &str, version: &str) {
    let path = format!("/admin/explain/{id}");
    let page = router.admin_shows(&path, "the request is over", |page| page["outcome"].is_object());
    let page = page.await;
    let call = &page["calls"][0];
    assert_eq!(
        (&call["policy"], &call["version"]),
        (&json!(name), &json!(version)),
        "{page}"
    );
}

#[tokio::test]
async fn decisions_of_a_policy_before_and_after_a_change_of_its_parameters_have_two_versions() {
    let fleet = fast_fleet().await;
    let route = "[[routes]]\npool = \"chat\"\npolicy = \"mine\"\n";
    let toml = |request_tokens| config(&fleet, &policy("mine", request_tokens), route);
    let router = TestRouter::start(&toml(10)).await.unwrap();
    let mut requests = Vec::new();
    for (request_tokens, completions) in [(10, 4), (1_000, 2)] {
        router.save_config(&toml(request_tokens)).unwrap();
        let reloaded = router.admin.post("/admin/reload", &Value::Null).await.unwrap();
        assert_eq!(reloaded.status, StatusCode::OK, "{}", reloaded.text());
        let active = version(&router, "mine").await;
        for number in 0..completions {
            requests.push((complete(&router, number).await, active.clone()));
        }
    }
    let log = router.path("decisions.jsonl");
    written(&log, requests.len()).await;

    let described = described(&router);
    let described: Vec<[&str; 3]> = described
        .iter()
        .map(|line| ["name", "version-id", "params"].map(|key| line[key].as_str().unwrap()))
        .collect();
    let [first, second] = [&requests[0].1, &requests[4].1];
    assert_ne!(first, second);
    let [few, many] = [r#"{"request-tokens":10}"#, r#"{"request-tokens":1000}"#];
    assert_eq!(
        described,
        [["mine", first.as_str(), few], ["mine", second.as_str(), many]]
    );
    for (id, version) in &requests {
        explained(&router, id, "mine", version).await;
    }

    let log = log.to_str().unwrap();
    let run = conductor(&["policy", "replay", COMPONENT, "--log", log]).await;
    let several = format!("several parameters: choose one with --params, of {few}, {many}");
    assert!(run.code != 0 && run.stderr.contains(&several), "{run:?}");
    for (params, own) in [(few, 4), (many, 2)] {
        let args = [
            "policy", "replay", COMPONENT, "--log", log, "--params", params, "--json",
        ];
        let run = conductor(&args).await;
        let report = run.json();
        let (again, other) = (&report["again"], &report["other"]);
        assert_eq!((&again["identical"], run.code), (&json!(own), 0), "{report}");
        assert_eq!(other["recorded-policies"], json!({ "mine": 6 - own }), "{report}");
    }
}

#[tokio::test]
async fn policies_of_the_same_bytes_and_parameters_are_two_in_the_log_and_one_in_a_replay() {
    let fleet = fast_fleet().await;
    let policies = policy("one", 10) + &policy("two", 10);
    let routes = "[[routes]]\nmatch.path = \"/v1/completions\"\npool = \"chat\"\npolicy = \"one\"\n\
                  [[routes]]\npool = \"chat\"\npolicy = \"two\"\n";
    let router = TestRouter::start(&config(&fleet, &policies, routes))
        .await
        .unwrap();
    let id = version(&router, "one").await;
    assert_eq!(id, version(&router, "two").await);
    for number in 0..3 {
        let (completion, chat) = (complete(&router, number).await, chat(&router, true).await);
        explained(&router, &completion, "one", &id).await;
        explained(&router, &chat, "two", &id).await;
    }
    let log = router.path("decisions.jsonl");
    written(&log, 6).await;
    let described = described(&router);
    let names: Vec<&Value> = described.iter().map(|line| &line["name"]).collect();
    assert_eq!(names, ["one", "two"]);
    assert!(
        described.iter().all(|line| line["version-id"] == *id),
        "{described:?}"
    );
    let (report, code) = replay(COMPONENT, &log).await;
    assert_eq!((&report["again"]["identical"], code), (&json!(6), 0), "{report}");
}
