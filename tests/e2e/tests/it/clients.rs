//! Clients with keys of the configuration, and what is on which listener.

use bytes::Bytes;
use harness::{Answer, Client, TestRouter, eventually, route_all};
use http::{Method, StatusCode};
use serde_json::Value;
use tempfile::TempDir;

use crate::{chat, fast_fleet, router_with};

/// SHA-256 of `test`.
const HASH_OF_TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// Returns a folder with a file for each of these keys, by name.
fn keys(keys: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, key) in keys {
        replace(&folder, name, key);
    }
    folder
}

/// Puts a key in the place of another, as a secret's mount does.
fn replace(folder: &TempDir, name: &str, key: &str) {
    let fresh = folder.path().join("fresh");
    std::fs::write(&fresh, format!("{key}\n")).unwrap();
    std::fs::rename(&fresh, folder.path().join(name)).unwrap();
}

fn file(folder: &TempDir, name: &str) -> String {
    format!("{{ file = {:?} }}", folder.path().join(name))
}

async fn send_request(client: &Client, method: Method, path: &str, key: Option<&str>, body: Bytes) -> Answer {
    let bearer = key.map(|key| format!("Bearer {key}"));
    let headers: Vec<(&str, &str)> = bearer
        .iter()
        .map(|bearer| ("authorization", bearer.as_str()))
        .collect();
    let sent = client.stream(method, path, &headers, body).await.unwrap();
    sent.whole().await.unwrap()
}

async fn chat_with(client: &Client, key: Option<&str>) -> Answer {
    let body = Bytes::from(chat("hi", false).to_string());
    send_request(client, Method::POST, "/v1/chat/completions", key, body).await
}

async fn get_with(client: &Client, path: &str, key: Option<&str>) -> StatusCode {
    send_request(client, Method::GET, path, key, Bytes::new())
        .await
        .status
}

#[tokio::test]
async fn clients_of_the_file_come_in_with_their_keys_and_limits() {
    let fleet = fast_fleet(1).await;
    let folder = keys(&[("search.key", "sk-search")]);
    let clients = format!(
        "[clients.search]\nkey = {}\nrequests-per-minute = 2\n\
         [clients.other]\nkey-sha256 = [\"{HASH_OF_TEST}\"]\nmodels = [\"none-*\"]\n",
        file(&folder, "search.key")
    );
    let toml = format!("{clients}{}{}", fleet.workers_toml(), route_all("round-robin"));
    let router = TestRouter::start(&toml).await.unwrap();
    assert_eq!(
        chat_with(&router.client, None).await.status,
        StatusCode::UNAUTHORIZED
    );
    for left in ["1", "0"] {
        let answer = chat_with(&router.client, Some("sk-search")).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(answer.header("x-ratelimit-remaining-requests"), left);
    }
    let third = chat_with(&router.client, Some("sk-search")).await;
    assert_eq!(third.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(!third.header("retry-after").is_empty());

    let other = chat_with(&router.client, Some("test")).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    assert_eq!(other.json().unwrap()["error"]["code"], "model_not_found");
    let models = send_request(
        &router.client,
        Method::GET,
        "/v1/models",
        Some("test"),
        Bytes::new(),
    )
    .await;
    assert_eq!(models.json().unwrap()["data"], Value::Array(vec![]));

    // A reload that raises no limit keeps the used budget.
    router.save_config(&format!("{toml}\n")).unwrap();
    router
        .admin_shows("/admin/config", "generation 2", |page| page["generation"] == 2)
        .await;
    let again = chat_with(&router.client, Some("sk-search")).await;
    assert_eq!(again.status, StatusCode::TOO_MANY_REQUESTS);
    let metrics = router.admin.get("/metrics").await.unwrap().text();
    for line in [
        "conductor_client_requests_total{client=\"search\"} 2",
        "conductor_client_refusals_total{client=\"search\",reason=\"requests\"} 2",
        "conductor_client_refusals_total{client=\"other\",reason=\"model\"} 1",
        "conductor_client_refusals_total{client=\"\",reason=\"no-key\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[tokio::test]
async fn a_key_file_that_changes_alone_is_noticed() {
    let fleet = fast_fleet(1).await;
    let folder = keys(&[
        ("search.key", "one"),
        ("admin.key", "admin-one"),
        ("engine.key", "engine-one"),
    ]);
    let keys = format!(
        "admin-api-key = {}\n[clients.search]\nkey = {}\n[pools.chat]\nauthorization = {}\n",
        file(&folder, "admin.key"),
        file(&folder, "search.key"),
        file(&folder, "engine.key"),
    );
    let router = router_with(&keys, &fleet, "round-robin").await;
    assert_eq!(
        chat_with(&router.client, Some("one")).await.status,
        StatusCode::OK
    );

    replace(&folder, "search.key", "two");
    let is_in = async |key: &str| chat_with(&router.client, Some(key)).await.status == StatusCode::OK;
    eventually("the new key is active", || is_in("two")).await;
    assert!(!is_in("one").await, "the old one is not");

    replace(&folder, "admin.key", "admin-two");
    let reload = async |key: &str| {
        send_request(
            &router.admin,
            Method::POST,
            "/admin/reload",
            Some(key),
            Bytes::new(),
        )
        .await
    };
    eventually("the new admin key is active", || async {
        reload("admin-two").await.status == StatusCode::OK
    })
    .await;
    assert_eq!(reload("admin-one").await.status, StatusCode::UNAUTHORIZED);

    // An unavailable key changes nothing, and is reported.
    replace(&folder, "search.key", "");
    let problem = router
        .admin_shows("/admin/config", "the problem is reported", |page| {
            page["problems"][0].is_object()
        })
        .await;
    let problem = &problem["problems"][0];
    assert_eq!(problem["code"], "key-unavailable");
    assert_ne!(problem["line"], 1, "{problem}");
    assert!(is_in("two").await);
    replace(&folder, "search.key", "three");
    eventually("it is repaired", || is_in("three")).await;
    router
        .admin_shows("/admin/config", "no problem is left", |page| {
            page["problems"] == Value::Array(vec![])
        })
        .await;
}

/// Pages of the admin listener, with their methods.
const ADMIN_PAGES: [(Method, &str); 10] = [
    (Method::GET, "/admin/config"),
    (Method::GET, "/admin/policies"),
    (Method::GET, "/admin/discovery"),
    (Method::GET, "/admin/feeds"),
    (Method::GET, "/admin/trials"),
    (Method::GET, "/admin/explain/x"),
    (Method::POST, "/admin/reload"),
    (Method::POST, "/admin/policies/round-robin/rollback"),
    (Method::POST, "/admin/policies/round-robin/resume"),
    (Method::POST, "/admin/canaries/round-robin/resume"),
];

#[tokio::test]
async fn clients_never_get_an_admin_page() {
    let fleet = fast_fleet(1).await;
    let folder = keys(&[("admin.key", "admin")]);
    let toml = format!(
        "admin-api-key = {}\n[clients.x]\nkey-sha256 = \"{HASH_OF_TEST}\"\n{}{}",
        file(&folder, "admin.key"),
        fleet.workers_toml(),
        route_all("round-robin"),
    );
    let router = TestRouter::start(&toml).await.unwrap();
    for key in [None, Some("test"), Some("admin")] {
        for (method, path) in ADMIN_PAGES {
            let answer = send_request(&router.client, method, path, key, Bytes::from("{}")).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
            assert_eq!(answer.json().unwrap()["error"]["code"], "unknown_path");
        }
    }
    // Pages that change the fleet require the admin key, and so does the fleet's state.
    for key in [None, Some("test")] {
        let add = send_request(
            &router.client,
            Method::POST,
            "/instances/add",
            key,
            Bytes::from("{}"),
        )
        .await;
        assert_eq!(add.status, StatusCode::UNAUTHORIZED);
        assert_eq!(
            get_with(&router.client, "/status", key).await,
            StatusCode::UNAUTHORIZED
        );
    }
    assert_eq!(
        get_with(&router.client, "/status", Some("admin")).await,
        StatusCode::OK
    );
    // Pages with names of clients and pools require it too, unless configured otherwise.
    crate::filled(&router).await;
    let ready = router.client.get("/readyz").await.unwrap();
    assert_eq!(
        (ready.status, &*ready.text()),
        (StatusCode::OK, r#"{"ready":true}"#)
    );
    assert_eq!(
        get_with(&router.client, "/metrics", None).await,
        StatusCode::NOT_FOUND
    );

    router
        .save_config(&format!("metrics-on-listen = true\n{toml}"))
        .unwrap();
    eventually("clients may read the metrics", || async {
        get_with(&router.client, "/metrics", None).await == StatusCode::OK
    })
    .await;
    assert_eq!(get_with(&router.admin, "/metrics", None).await, StatusCode::OK);
}

#[tokio::test]
async fn without_an_admin_key_clients_neither_change_nor_see_the_fleet() {
    let fleet = fast_fleet(1).await;
    let client = format!("[clients.x]\nkey-sha256 = \"{HASH_OF_TEST}\"\n");
    let router = router_with(&client, &fleet, "round-robin").await;
    let body = r#"{"type": "mixed", "instance": "127.0.0.1:1"}"#;
    let add = send_request(
        &router.client,
        Method::POST,
        "/instances/add",
        Some("test"),
        body.into(),
    )
    .await;
    assert_eq!(add.status, StatusCode::FORBIDDEN);
    assert_eq!(
        get_with(&router.client, "/status", Some("test")).await,
        StatusCode::FORBIDDEN
    );
    assert_eq!(get_with(&router.admin, "/status", None).await, StatusCode::OK);
}

#[tokio::test]
async fn admin_pages_require_the_key_where_that_is_configured() {
    let fleet = fast_fleet(1).await;
    let folder = keys(&[("admin.key", "admin")]);
    let key = file(&folder, "admin.key");
    let keys = format!("admin-key-for-reads = true\nadmin-api-key = {key}");
    let router = router_with(&keys, &fleet, "round-robin").await;
    for path in [
        "/admin/config",
        "/admin/policies",
        "/admin/trials",
        "/status",
        "/metrics",
    ] {
        assert_eq!(
            get_with(&router.admin, path, None).await,
            StatusCode::UNAUTHORIZED,
            "{path}"
        );
        assert_eq!(
            get_with(&router.admin, path, Some("admin")).await,
            StatusCode::OK,
            "{path}"
        );
    }
    crate::filled(&router).await;
    for path in ["/health", "/readyz"] {
        assert_eq!(
            get_with(&router.admin, path, None).await,
            StatusCode::OK,
            "{path}"
        );
    }
}

#[tokio::test]
async fn two_clients_of_one_key_are_refused() {
    let fleet = fast_fleet(1).await;
    let folder = keys(&[("one.key", "test")]);
    let toml = format!(
        "[clients.a]\nkey-sha256 = \"{HASH_OF_TEST}\"\n[clients.b]\nkey = {}\n{}{}",
        file(&folder, "one.key"),
        fleet.workers_toml(),
        route_all("round-robin"),
    );
    let error = format!("{:#}", TestRouter::start(&toml).await.unwrap_err());
    assert!(error.contains("`clients.b.key`"), "{error}");
}

#[tokio::test]
async fn clients_see_no_decision_unless_it_is_configured() {
    let fleet = fast_fleet(1).await;
    for is_shown in [false, true] {
        let toml = format!(
            "decision-headers = {is_shown}\n[clients.search]\nkey-sha256 = [\"{HASH_OF_TEST}\"]\n\
             {}{}",
            fleet.workers_toml(),
            route_all("round-robin")
        );
        let router = TestRouter::start(&toml).await.unwrap();
        let send = async |method: Method, path: &str, body: Value| {
            let body = Bytes::from(body.to_string());
            let answer = send_request(&router.client, method, path, Some("test"), body).await;
            let names: Vec<&str> = answer.headers.keys().map(|name| name.as_str()).collect();
            let shown = names.iter().any(|name| name.starts_with("x-conductor-"));
            assert_eq!(shown, is_shown, "{path}: {} {names:?}", answer.status);
            answer
        };
        let made = send(
            Method::POST,
            "/v1/responses",
            serde_json::json!({ "model": "mock", "input": "hi", "max_output_tokens": 2 }),
        )
        .await;
        let id = made.json().unwrap()["id"].as_str().unwrap().to_owned();
        send(Method::GET, &format!("/v1/responses/{id}"), Value::Null).await;
        let prompt = serde_json::json!({ "model": "mock", "prompt": "hi" });
        send(Method::POST, "/tokenize", prompt).await;
        send(Method::POST, "/v1/chat/completions", chat("hi", true)).await;
        // The worker refuses it itself.
        let mut refused = chat("hi", false);
        refused["max_tokens"] = 1_000_000_000.into();
        let refused = send(Method::POST, "/v1/chat/completions", refused).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text());
    }
}
