//! Workers that come, go and change their role while the router serves.

use bytes::Bytes;
use harness::{Answer, Client, TestRouter, route_all};
use http::{Method, StatusCode};
use mock_engine::MockEngine;
use serde_json::{Value, json};

use crate::{chat, fast_fleet, router_over, router_with, worker_of};

const KEY: &str = "secret-of-the-tests";

fn server() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/admin.key");
    format!("admin-api-key = {{ file = \"{file}\" }}\n")
}

/// A pool that splits requests, whose engines need nothing between the two legs.
const POOL: &str = "[pools.chat]\npd = { dialect = \"store\" }\n";

fn worker(name: &str, role: &str, engine: &MockEngine) -> String {
    let url = engine.url();
    format!("[[pools.chat.workers]]\nname = \"{name}\"\nrole = \"{role}\"\nurl = \"{url}\"\n")
}

/// Starts a router with an admin key, over a prefill worker `w0` and decode workers `w1` and so on.
async fn split(engines: &[MockEngine]) -> (TestRouter, String) {
    let roles = std::iter::once("prefill").chain(std::iter::repeat("decode"));
    let workers = engines.iter().zip(roles).enumerate();
    let workers = workers.map(|(number, (engine, role))| worker(&format!("w{number}"), role, engine));
    let workers: String = workers.collect();
    let toml = format!("{}{POOL}{workers}{}", server(), route_all("round-robin"));
    (TestRouter::start(&toml).await.unwrap(), toml)
}

/// Returns `host:port`, as the seeds' proxies have it.
fn instance(engine: &MockEngine) -> String {
    engine.url().trim_start_matches("http://").to_owned()
}

async fn send(client: &Client, what: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let path = format!("/instances/{what}");
    let body = Bytes::from(body.to_owned());
    let sent = client.stream(Method::POST, &path, headers, body).await.unwrap();
    sent.whole().await.unwrap()
}

/// Changes the fleet with the key. Returns the answer if it succeeded.
async fn change(client: &Client, what: &str, body: Value) -> Value {
    let answer = send(client, what, &[("X-API-Key", KEY)], &body.to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json().unwrap()
}

/// Returns the workers that answer `count` requests, sorted and each once.
async fn answering(router: &TestRouter, count: usize) -> Vec<String> {
    harness::workers_checked(&router.admin).await;
    let mut seen = Vec::new();
    for _ in 0..count {
        seen.push(worker_of(router).await);
    }
    seen.sort();
    seen.dedup();
    seen
}

async fn status(client: &Client) -> Value {
    client.get("/status").await.unwrap().json().unwrap()
}

/// Returns `name role source` of each worker on the page.
fn workers(page: &Value) -> Vec<String> {
    let workers = page["pools"][0]["workers"].as_array().unwrap().iter();
    let text = |worker: &Value, key: &str| worker[key].as_str().unwrap().to_owned();
    workers
        .map(|worker| ["name", "role", "source"].map(|key| text(worker, key)).join(" "))
        .collect()
}

#[tokio::test]
async fn a_decode_worker_that_is_added_takes_traffic_as_the_seed_calls_it() {
    let mut fleet = fast_fleet(3).await;
    let added = fleet.engines.pop().unwrap();
    let (router, _) = split(&fleet.engines).await;
    assert_eq!(answering(&router, 3).await, ["w1"]);

    let body = json!({ "type": "decode", "instance": instance(&added) });
    let answer = change(&router.client, "add", body.clone()).await;
    assert_eq!(
        (answer["change"].as_str(), answer["generation"].as_u64()),
        (Some("added"), Some(2))
    );
    assert_eq!(answering(&router, 4).await, [instance(&added), "w1".into()]);

    let answer = change(&router.client, "add", body).await;
    assert_eq!(
        (answer["change"].as_str(), answer["generation"].as_u64()),
        (Some("unchanged"), Some(2))
    );
    let page = status(&router.client).await;
    assert_eq!(
        workers(&page),
        [
            "w0 prefill file".to_owned(),
            "w1 decode file".to_owned(),
            format!("{} decode api", instance(&added))
        ]
    );
    assert_eq!(page["overlays"][0]["kind"], "added");
    assert_eq!(
        page["pools"][0]["roles"],
        json!({ "mixed": 0, "prefill": 1, "decode": 2 })
    );
    let metrics = router.admin.get("/metrics").await.unwrap().text();
    assert!(
        metrics.contains("conductor_instance_overlays{kind=\"added\"} 1"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_role_is_changed_while_it_runs_and_back() {
    let fleet = fast_fleet(3).await;
    let (router, _) = split(&fleet.engines).await;
    assert_eq!(answering(&router, 4).await, ["w1", "w2"]);

    let role = |role: &str| json!({ "type": role, "instance": fleet.engines[2].url() });
    let answer = change(&router.admin, "add", role("prefill")).await;
    assert_eq!(answer["change"], "role-changed");
    let before = fleet.engines[2].requests("/v1/chat/completions").len();
    assert_eq!(answering(&router, 4).await, ["w1"]);
    let after = fleet.engines[2].requests("/v1/chat/completions").len();
    assert!(after > before, "it gets prefill legs");
    let page = status(&router.admin).await;
    assert_eq!(workers(&page)[2], "w2 prefill api-role");

    change(&router.admin, "add", role("decode")).await;
    assert_eq!(answering(&router, 4).await, ["w1", "w2"]);
    assert_eq!(status(&router.admin).await["overlays"], json!([]));
}

#[tokio::test]
async fn a_stream_ends_in_full_at_a_worker_that_is_removed_meanwhile() {
    let fleet = fast_fleet(2).await;
    let workers = fleet.workers_toml() + &route_all("round-robin");
    let router = TestRouter::start(&format!("{}{workers}", server()))
        .await
        .unwrap();
    for engine in &fleet.engines {
        engine.faults().hold_streams_after(2);
    }
    let body = chat("hello", true);
    let mut stream = router.client.open("/v1/chat/completions", &body).await.unwrap();
    let name = stream.header("x-conductor-worker").to_owned();
    let number: usize = name.trim_start_matches('w').parse().unwrap();
    let gone = json!({ "instance": instance(&fleet.engines[number]) });
    let mut text = String::new();
    while let Some(chunk) = stream.chunk().await.unwrap() {
        if text.is_empty() {
            let answer = change(&router.client, "remove", gone.clone()).await;
            assert_eq!(answer["change"], "removed");
            let held = async || fleet.engines[number].stats().held_streams == 1;
            harness::eventually("the stream is not over yet", held).await;
            for engine in &fleet.engines {
                engine.faults().clear();
            }
        }
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(answering(&router, 3).await, [format!("w{}", 1 - number)]);

    let again = send(&router.client, "remove", &[("x-api-key", KEY)], &gone.to_string()).await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
    let back = json!({ "type": "mixed", "instance": instance(&fleet.engines[number]) });
    change(&router.client, "add", back).await;
    assert_eq!(answering(&router, 4).await, ["w0", "w1"]);
}

#[tokio::test]
async fn a_reload_keeps_what_was_requested_until_the_file_differs() {
    let mut fleet = fast_fleet(4).await;
    let added = fleet.engines.pop().unwrap();
    let (router, toml) = split(&fleet.engines).await;
    change(
        &router.client,
        "add",
        json!({ "type": "decode", "instance": instance(&added) }),
    )
    .await;
    change(
        &router.client,
        "remove",
        json!({ "instance": instance(&fleet.engines[2]) }),
    )
    .await;

    router
        .save_config(&format!("{toml}[index]\nexpect-for = \"1s\"\n"))
        .unwrap();
    let page = router
        .admin_shows("/admin/config", "the edit is active", |page| {
            page["reloads_applied"] == 1
        })
        .await;
    assert_eq!(page["generation"], 4);
    assert_eq!(page["overlays"].as_array().unwrap().len(), 2, "{page}");
    assert_eq!(answering(&router, 4).await, [instance(&added), "w1".into()]);

    let taken_over = toml.replacen(
        "[[routes]]",
        &format!("{}[[routes]]", worker("w9", "decode", &added)),
        1,
    );
    let changed = taken_over.replacen("name = \"w2\"", "name = \"w3\"", 1);
    router.save_config(&changed).unwrap();
    let page = router
        .admin_shows("/admin/config", "the file has its way", |page| {
            page["reloads_applied"] == 2
        })
        .await;
    assert_eq!(page["overlays"], json!([]));
    assert_eq!(
        page["overlays_ended"][0]["why"], "the file names it itself",
        "{page}"
    );
    assert_eq!(page["overlays_ended"].as_array().unwrap().len(), 2, "{page}");
    let page = status(&router.client).await;
    let listed: Vec<String> = workers(&page);
    assert_eq!(
        listed,
        [
            "w0 prefill file",
            "w1 decode file",
            "w3 decode file",
            "w9 decode file"
        ]
    );
}

#[tokio::test]
async fn a_broken_file_stands_in_the_way_of_no_change() {
    let mut fleet = fast_fleet(3).await;
    let added = fleet.engines.pop().unwrap();
    let (router, toml) = split(&fleet.engines).await;
    router.save_config(&format!("{toml}[[routes")).unwrap();
    let has_problems = |page: &Value| page["problems"] != json!([]);
    router
        .admin_shows("/admin/config", "the mistake is shown", has_problems)
        .await;
    change(
        &router.client,
        "add",
        json!({ "type": "decode", "instance": instance(&added) }),
    )
    .await;
    assert_eq!(answering(&router, 4).await, [instance(&added), "w1".into()]);
    let page = router.admin("/admin/config").await.unwrap();
    assert!(has_problems(&page), "still: {page}");
    assert_eq!(status(&router.client).await["config"]["valid"], false);
}

#[tokio::test]
async fn requests_without_the_key_change_nothing() {
    let fleet = fast_fleet(2).await;
    let (router, _) = split(&fleet.engines).await;
    let body = json!({ "instance": instance(&fleet.engines[1]) }).to_string();
    for client in [&router.client, &router.admin] {
        for headers in [&[][..], &[("x-api-key", "wrong")], &[("authorization", KEY)]] {
            let answer = send(client, "remove", headers, &body).await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{}", answer.text());
            assert_eq!(answer.json().unwrap()["error"]["code"], "invalid_api_key");
        }
    }
    let page = status(&router.client).await;
    assert_eq!((&page["generation"], &page["overlays"]), (&json!(1), &json!([])));
    assert!(
        !page.to_string().contains(KEY) && !page.to_string().contains("admin.key"),
        "{page}"
    );
}

#[tokio::test]
async fn without_a_key_only_the_admin_listener_takes_changes() {
    let fleet = fast_fleet(2).await;
    let router = router_over(&fleet, "round-robin").await;
    let body = json!({ "instance": fleet.engines[1].url() }).to_string();
    let answer = send(&router.client, "remove", &[("x-api-key", "")], &body).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let error = answer.json().unwrap()["error"].clone();
    assert_eq!(error["code"], "admin_api_key_not_set");
    assert!(
        error["message"].as_str().unwrap().contains("admin-api-key"),
        "{error}"
    );
    let answer = send(&router.admin, "remove", &[], &body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answering(&router, 3).await, ["w0"]);
}

#[tokio::test]
async fn a_refused_change_of_an_instance_names_its_reason() {
    let fleet = fast_fleet(2).await;
    let router = router_with(&server(), &fleet, "round-robin").await;
    let at = instance(&fleet.engines[0]);
    let cases = [
        ("add", "{".to_owned(), 400, "invalid_json", "instance"),
        (
            "add",
            json!({ "type": "mixed" }).to_string(),
            400,
            "invalid_json",
            "instance",
        ),
        (
            "add",
            json!({ "instance": "a:1" }).to_string(),
            400,
            "type_missing",
            "decode",
        ),
        (
            "add",
            json!({ "type": "mixed", "instance": "nowhere:http" }).to_string(),
            400,
            "address_invalid",
            "port",
        ),
        (
            "add",
            json!({ "type": "decode", "instance": "a:1" }).to_string(),
            400,
            "role_not_allowed",
            "`chat` (no pd)",
        ),
        (
            "add",
            json!({ "type": "mixed", "instance": "a:1", "pool": "x" }).to_string(),
            404,
            "pool_not_found",
            "`chat`",
        ),
        (
            "remove",
            json!({ "instance": "a:1" }).to_string(),
            404,
            "instance_not_found",
            "a:1",
        ),
        (
            "remove",
            json!({ "type": "decode", "instance": at }).to_string(),
            409,
            "has_another_role",
            "mixed",
        ),
        ("add", "x".repeat(100_000), 413, "body_too_large", "bytes"),
    ];
    for (what, body, status, code, message) in cases {
        let answer = send(&router.client, what, &[("x-api-key", KEY)], &body).await;
        let error = answer.json().unwrap()["error"].clone();
        assert_eq!((answer.status.as_u16(), &error["code"]), (status, &json!(code)));
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
    }
    let answer = router.client.get("/instances/add").await.unwrap();
    assert_eq!(
        (answer.status, answer.header("allow")),
        (StatusCode::METHOD_NOT_ALLOWED, "POST")
    );
    assert!(
        answer.json().unwrap()["error"]["message"]
            .as_str()
            .unwrap()
            .contains("POST")
    );
    assert_eq!(status(&router.client).await["generation"], 1);
}

#[tokio::test]
async fn the_status_reports_health_load_and_policies() {
    let mut fleet = fast_fleet(2).await;
    let ejection =
        "[pools.chat.health]\npath = \"off\"\nbase-ejection-time = \"1h\"\nmax-ejection-time = \"1h\"\n";
    let router = router_with(ejection, &fleet, "round-robin").await;
    fleet.engines.pop().unwrap().stop().await;
    answering(&router, 4).await;
    harness::eventually("the dead worker rests and the other's feed lives", || async {
        let page = status(&router.client).await;
        let workers = &page["pools"][0]["workers"];
        workers[0]["health"] == "ok"
            && workers[0]["feed_live"] == true
            && workers[1]["health"] == "ejected"
            && workers[0]["load"] == json!({ "requests": 0, "decoding": 0, "prefill_tokens": 0 })
    })
    .await;
    let page = status(&router.admin).await;
    let policy = &page["routes"][0]["policy"];
    assert_eq!(policy["name"], "round-robin");
    assert_eq!(policy["generation"], 1);
    assert_eq!(policy["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(page["pools"][0]["dialect"], Value::Null);
}
