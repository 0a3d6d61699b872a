//! `conductor.toml` edited while serving.

use harness::{TestRouter, route_all};
use http::StatusCode;

use crate::{chat, fast_fleet, router_over};

async fn worker_of(router: &TestRouter) -> String {
    let answer = router
        .client
        .post("/v1/chat/completions", &chat("hi", false))
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.header("x-conductor-worker").to_owned()
}

#[tokio::test]
async fn a_worker_that_is_added_gets_traffic_and_one_that_is_removed_gets_none() {
    let fleet = fast_fleet(2).await;
    let one = |name: &str, url: &str| format!("[[pools.chat.workers]]\nname = \"{name}\"\nurl = \"{url}\"\n");
    let first = one("w0", &fleet.engines[0].url());
    let second = one("w1", &fleet.engines[1].url());
    let routes = route_all("round-robin");

    let router = TestRouter::start(&format!("{first}{routes}")).await.unwrap();
    assert_eq!(worker_of(&router).await, "w0");

    router.save_config(&format!("{first}{second}{routes}")).unwrap();
    router
        .admin_shows("/admin/config", "generation 2", |page| page["generation"] == 2)
        .await;
    let seen = [worker_of(&router).await, worker_of(&router).await];
    assert!(
        seen.contains(&"w0".into()) && seen.contains(&"w1".into()),
        "{seen:?}"
    );

    router.save_config(&format!("{second}{routes}")).unwrap();
    router
        .admin_shows("/admin/config", "generation 3", |page| page["generation"] == 3)
        .await;
    for _ in 0..4 {
        assert_eq!(worker_of(&router).await, "w1");
    }
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_says_where_it_is_broken() {
    let fleet = fast_fleet(1).await;
    let good = format!("{}{}", fleet.workers_toml(), route_all("round-robin"));
    let router = TestRouter::start(&good).await.unwrap();
    assert_eq!(worker_of(&router).await, "w0");

    router
        .save_config(&good.replace("policy = \"round-robin\"", "policy = \"rund-robin\"\npol = 1"))
        .unwrap();
    let page = router
        .admin_shows("/admin/config", "the mistakes are shown", |page| {
            page["problems"]
                .as_array()
                .is_some_and(|problems| !problems.is_empty())
        })
        .await;
    let problems = page["problems"].as_array().unwrap();
    assert!(
        problems.iter().all(|problem| problem["line"].as_u64() > Some(1)),
        "{problems:?}"
    );
    assert!(problems.len() >= 2, "both mistakes in one run: {problems:?}");
    assert_eq!(page["generation"], 1);
    assert_eq!(worker_of(&router).await, "w0");
    let metrics = router.admin.get("/metrics").await.unwrap().text();
    assert!(metrics.contains("conductor_config_valid 0"), "{metrics}");

    router.save_config(&good).unwrap();
    router
        .admin_shows("/admin/config", "mended", |page| {
            page["problems"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
}

#[tokio::test]
async fn a_reload_can_be_asked_for() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let answer = router
        .admin
        .post("/admin/reload", &serde_json::json!({}))
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(
        answer.json().unwrap()["generation"],
        1,
        "nothing changed, so nothing was swapped"
    );
}

/// One policy with a table, and what routes to it.
fn tuned(workers: &str, params: &str) -> String {
    format!(
        "[policies.tuned]\nbuiltin = \"cache-aware\"\nparams = {{ {params} }}\n\n{workers}{}",
        route_all("tuned")
    )
}

fn tuned_state(page: &serde_json::Value) -> &serde_json::Value {
    let policies = page["policies"].as_array().into_iter().flatten();
    let mut tuned = policies.filter(|policy| policy["name"] == "tuned");
    tuned.next().unwrap_or(&serde_json::Value::Null)
}

#[tokio::test]
async fn bad_params_of_a_policy_that_works_are_refused_at_their_place() {
    let fleet = fast_fleet(1).await;
    let workers = fleet.workers_toml();
    let router = TestRouter::start(&tuned(&workers, "backlog-price = 0.5"))
        .await
        .unwrap();
    router
        .save_config(&tuned(&workers, "backlog-prise = 0.7, host-worth = 2"))
        .unwrap();
    let page = router
        .admin_shows("/admin/config", "the mistake is shown", |page| {
            page["problems"].to_string().contains("backlog-prise")
        })
        .await;
    let text = std::fs::read_to_string(router.path("conductor.toml")).unwrap();
    let line = 1 + text.lines().position(|line| line.starts_with("params")).unwrap() as u64;
    let problems = page["problems"].as_array().unwrap();
    let places: Vec<_> = problems
        .iter()
        .map(|problem| (&problem["line"], &problem["column"]))
        .collect();
    let line = &serde_json::json!(line);
    // The name of the one, what the other is given.
    assert_eq!(places, [(line, &12.into()), (line, &46.into())], "{page}");
    assert_eq!(page["generation"], 1);
    assert_eq!(worker_of(&router).await, "w0");
}

#[tokio::test]
async fn of_a_refused_edit_nothing_is_applied() {
    let fleet = fast_fleet(1).await;
    let workers = fleet.workers_toml();
    let router = TestRouter::start(&tuned(&workers, "backlog-price = 0.5"))
        .await
        .unwrap();
    router.save_policy("broken", b"not wasm").unwrap();
    let edit = format!(
        "{}\n[[routes]]\npool = \"chat\"\npolicy = \"broken\"\n",
        tuned(&workers, "backlog-price = 0.7")
            .replace("[[routes]]\n", "[[routes]]\nmatch = { model = \"a\" }\n")
    );
    router.save_config(&edit).unwrap();
    router
        .admin_shows("/admin/config", "the broken policy is named", |page| {
            page["problems"].to_string().contains("broken")
        })
        .await;
    let page = router.admin("/admin/policies").await.unwrap();
    assert_eq!(
        tuned_state(&page)["swaps"],
        1,
        "the new params are not in force: {page}"
    );
    assert_eq!(router.admin("/admin/config").await.unwrap()["generation"], 1);

    router
        .save_policy("broken", conductor::builtin::find("round-robin").unwrap().bytes)
        .unwrap();
    router
        .admin_shows("/admin/config", "all of it is in force", |page| {
            page["problems"].as_array().is_some_and(Vec::is_empty) && page["generation"].as_u64() > Some(1)
        })
        .await;
    router
        .admin_shows("/admin/policies", "the new params are in force", |page| {
            tuned_state(page)["swaps"] == 2
        })
        .await;
}

#[tokio::test]
async fn keys_that_need_a_restart_are_named_while_they_differ_from_the_start() {
    let fleet = fast_fleet(1).await;
    let good = format!("{}{}", fleet.workers_toml(), route_all("round-robin"));
    let router = TestRouter::start(&good).await.unwrap();
    router
        .save_config(&format!("[index]\nmax-blocks = 5000\n\n{good}"))
        .unwrap();
    router
        .admin_shows("/admin/config", "the key is named", |page| {
            page["needs-restart"] == serde_json::json!(["index.max-blocks"])
        })
        .await;
    router.save_config(&good).unwrap();
    router
        .admin_shows("/admin/config", "the key is back", |page| {
            page["needs-restart"] == serde_json::json!([])
        })
        .await;
}
