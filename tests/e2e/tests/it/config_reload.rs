//! `conductor.toml` edited while serving.

use std::net::TcpListener;

use harness::{Answer, TestRouter, eventually, route_all, worker_toml};
use http::StatusCode;
use mock_engine::{RequestFault, Times};
use serde_json::Value;

use crate::affinity::informed;
use crate::{chat, fast_fleet, long_prompt, router_over, worker_of};

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
    // The worker gets requests once it was reached.
    harness::workers_checked(&router.admin).await;
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
async fn a_broken_file_changes_nothing_and_its_errors_have_places() {
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
    assert!(
        metrics.contains("conductor_config_last_reload_successful 0"),
        "{metrics}"
    );

    router.save_config(&good).unwrap();
    router
        .admin_shows("/admin/config", "mended", |page| {
            page["problems"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
}

#[tokio::test]
async fn a_reload_can_be_requested() {
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

async fn reload(router: &TestRouter) -> (StatusCode, Value) {
    let answer = router.admin.post("/admin/reload", &Value::Null).await.unwrap();
    (answer.status, answer.json().unwrap())
}

async fn send(router: &TestRouter, text: &str) -> Answer {
    let chats = "/v1/chat/completions";
    router.client.post(chats, &chat(text, false)).await.unwrap()
}

/// Saves a configuration that moves the clients' listener to a port that is in use, and has it refused.
async fn refused_for_its_port(router: &TestRouter, toml: &str) {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = router.path("conductor.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let (server, _) = text.split_once("drain-timeout").unwrap();
    let listen = format!("listen = \"{}\"\nadmin-listen", taken.local_addr().unwrap());
    let moved = server.replacen("listen = \"127.0.0.1:0\"\nadmin-listen", &listen, 1);
    assert_ne!(server, moved);
    std::fs::write(router.path("moved.toml"), format!("{moved}{toml}")).unwrap();
    std::fs::rename(router.path("moved.toml"), file).unwrap();
    let page = router
        .admin_shows("/admin/config", "the port is in use", |page| {
            page["problems"].to_string().contains("server.listen")
        })
        .await;
    assert_eq!(page["problems"].as_array().map(Vec::len), Some(1), "{page}");
    let (status, page) = reload(router).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{page}");
    assert_eq!(
        (&page["outcome"], &page["step"]),
        (&"refused".into(), &"sockets".into())
    );
}

#[tokio::test]
async fn an_edit_that_is_refused_for_its_port_leaves_feeds_and_index_as_they_were() {
    let fleet = fast_fleet(2).await;
    let one = |number: usize| {
        format!(
            "[pools.chat]\ntokenize-timeout = \"10s\"\n{}{}",
            worker_toml(number, &fleet.engines[number]),
            route_all("cache-aware")
        )
    };
    let router = informed(TestRouter::start(&one(0)).await.unwrap()).await;
    let blocks = "conductor_index_worker_blocks{worker=\"w0\"";
    let held = async || router.metric(blocks).await.unwrap().unwrap_or_default();
    let prompt = long_prompt(1);
    assert_eq!(send(&router, &prompt).await.status, StatusCode::OK);
    let all = |page: &Value| page["feeds"][0]["last_seq"] == fleet.engines[0].stats().batches - 1;
    let feeds = router
        .admin_shows("/admin/feeds", "the request is indexed", all)
        .await;
    let before = held().await;
    assert!(before > 0.0, "{feeds}");
    assert_eq!(feeds["feeds"][0]["state"], "live");

    refused_for_its_port(&router, &one(1)).await;

    let now = router.admin("/admin/feeds").await.unwrap();
    for field in ["worker", "endpoint", "state", "batches", "resets"] {
        assert_eq!(now["feeds"][0][field], feeds["feeds"][0][field], "{field}: {now}");
    }
    assert_eq!(now["feeds"].as_array().map(Vec::len), Some(1), "{now}");
    assert_eq!(held().await, before, "the index keeps what the worker holds");
    let metrics = router.admin.get("/metrics").await.unwrap().text();
    assert!(
        !metrics.contains("worker=\"w1\""),
        "a worker that was refused has no labels"
    );
    let answer = send(&router, &prompt).await;
    assert_eq!(answer.header("x-conductor-worker"), "w0");
    assert_ne!(answer.header("x-conductor-matched-tokens"), "0");
}

#[tokio::test]
async fn an_edit_that_is_refused_leaves_the_health_rules_as_they_were() {
    let fleet = fast_fleet(2).await;
    let with = |failures: u32| {
        format!(
            "[pools.chat.timeouts]\nfirst-byte = \"300ms\"\n[pools.chat.health]\nfailures = {failures}\nrest = \"1h\"\n\
             longest-rest = \"1h\"\n{}{}",
            fleet.workers_toml(),
            route_all("round-robin")
        )
    };
    let router = TestRouter::start(&with(1_000)).await.unwrap();
    refused_for_its_port(&router, &with(1)).await;
    let hang = |times| fleet.engines[1].faults().on_requests(RequestFault::Hang, times);
    let ejections = "conductor_worker_ejections_total{worker=\"w1\"";
    let failures = "conductor_worker_failures_total{worker=\"w1\"";
    let count = async |series| router.metric(series).await.unwrap().unwrap_or_default();
    hang(Times::UntilCleared);
    eventually("a request fails on the worker", || async {
        send(&router, "hi").await;
        count(failures).await > 0.0
    })
    .await;
    assert_eq!(
        count(ejections).await,
        0.0,
        "its rule is still a thousand failures"
    );
    fleet.engines[1].faults().clear();

    // Once applied, the same rule ejects it: the test would detect that.
    router.save_config(&with(1)).unwrap();
    router
        .admin_shows("/admin/config", "the rule is active", |page| {
            page["generation"] == 2
        })
        .await;
    hang(Times::UntilCleared);
    eventually("it is ejected", || async {
        send(&router, "hi").await;
        count(ejections).await > 0.0
    })
    .await;
}

#[tokio::test]
async fn a_reload_answers_with_what_changed_or_what_is_wrong() {
    let fleet = fast_fleet(2).await;
    let one = |number: usize| worker_toml(number, &fleet.engines[number]);
    let good = format!("{}{}", one(0), route_all("round-robin"));
    let router = TestRouter::start(&good).await.unwrap();
    let (status, page) = reload(&router).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (&page["outcome"], &page["changed"]),
        (&"unchanged".into(), &false.into())
    );

    router
        .save_config(&good.replace("policy = \"round-robin\"", "policy = \"rund-robin\""))
        .unwrap();
    let (status, page) = reload(&router).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{page}");
    assert_eq!(
        (&page["outcome"], &page["step"]),
        (&"refused".into(), &"parse".into())
    );
    assert_eq!(page["error"]["code"], "config_refused");
    let problem = &page["problems"][0];
    assert!(
        problem["line"].as_u64() > Some(1) && problem["column"].as_u64() > Some(1),
        "{page}"
    );
    assert_eq!(page["generation"], 1);

    // Whichever is first, the watch of the folder or the request, the file is applied once.
    router.save_config(&format!("{good}{}", one(1))).unwrap();
    let (status, page) = reload(&router).await;
    assert_eq!(
        (status, &page["generation"]),
        (StatusCode::OK, &2.into()),
        "{page}"
    );
    if page["outcome"] == "applied" {
        assert_eq!(
            page["changes"],
            serde_json::json!({ "workers": { "added": ["w1"] } })
        );
    }
}

/// Returns one policy with a table, and its route.
fn tuned(workers: &str, params: &str) -> String {
    format!(
        "[policies.tuned]\nbuiltin = \"cache-aware\"\nparams = {{ {params} }}\n\n{workers}{}",
        route_all("tuned")
    )
}

fn tuned_state(page: &Value) -> &Value {
    let policies = page["policies"].as_array().into_iter().flatten();
    let mut tuned = policies.filter(|policy| policy["name"] == "tuned");
    tuned.next().unwrap_or(&Value::Null)
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
        "the new params are not active: {page}"
    );
    assert_eq!(router.admin("/admin/config").await.unwrap()["generation"], 1);

    router
        .save_policy("broken", conductor::builtin::find("round-robin").unwrap().bytes)
        .unwrap();
    router
        .admin_shows("/admin/config", "all of it is active", |page| {
            page["problems"].as_array().is_some_and(Vec::is_empty) && page["generation"].as_u64() > Some(1)
        })
        .await;
    router
        .admin_shows("/admin/policies", "the new params are active", |page| {
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
            page["needs_restart"] == serde_json::json!(["index.max-blocks"])
        })
        .await;
    router.save_config(&good).unwrap();
    router
        .admin_shows("/admin/config", "the key is back", |page| {
            page["needs_restart"] == serde_json::json!([])
        })
        .await;
}
