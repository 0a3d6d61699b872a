//! Views of decisions: their numbers, and the decision of a shadow.

use harness::{TestRouter, route_all};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{answered, fast_fleet};

/// First tokens needed before their quantile is shown.
const ENOUGH: usize = 16;

#[tokio::test]
async fn numbers_of_a_worker_are_those_of_its_past() {
    let fleet = fast_fleet(2).await;
    let record = "[record]\ncolumns = \"all\"\nexplain-sample = 1.0\n\n";
    let toml = format!("{record}{}{}", fleet.workers_toml(), route_all("round-robin"));
    let router = TestRouter::start(&toml).await.unwrap();
    let body = json!({
        "model": "mock", "prompt": "one two three", "max_tokens": 12, "stream": true,
        "stream_options": { "include_usage": true },
    });
    let mut last = String::new();
    for _ in 0..2 * ENOUGH + 2 {
        let stream = router.client.open("/v1/completions", &body).await.unwrap();
        let answer = stream.whole().await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        answer.header("x-request-id").clone_into(&mut last);
    }
    let page = router.admin(&format!("/admin/explain/{last}")).await.unwrap();
    let call = &page["calls"][0];
    let request = &call["request_numbers"];
    assert_eq!(
        (
            &request["pool.workers"],
            &request["request.tried"],
            &request["pool.queued"]
        ),
        (&json!(2), &json!(0), &json!(0)),
        "{page}"
    );
    assert!(request["request.hold-left-ms"].as_f64() > Some(0.0), "{page}");
    let candidates = call["candidates"].as_array().unwrap();
    for numbers in candidates.iter().map(|candidate| &candidate["numbers"]) {
        let above_0 = |name: &str| numbers[name].as_f64() > Some(0.0);
        assert!(above_0("ttft.p90-ms") && above_0("tbt.ewma-ms"), "{numbers}");
        assert!(
            above_0("worker.age-ms") && above_0("worker.name-hash"),
            "{numbers}"
        );
        for name in ["worker.failures", "load.queued", "load.decoding-tokens"] {
            assert_eq!(numbers[name], json!(0), "{name}");
        }
        assert_eq!(numbers["worker.dp-rank"], Value::Null);
    }
}

#[tokio::test]
async fn each_decision_of_a_shadow_is_a_line_of_its_log() {
    let fleet = fast_fleet(3).await;
    let record = "[record]\nshadow-file = \"shadows.jsonl\"\n\n";
    let route = "[[routes]]\npool = \"chat\"\npolicy = \"round-robin\"\nshadow = [\"load-weighted\"]\nshadow-sample = 1.0\n";
    let router = TestRouter::start(&format!("{record}{}{route}", fleet.workers_toml()))
        .await
        .unwrap();
    let mut workers = Vec::new();
    for _ in 0..6 {
        let answer = answered(&router).await;
        let header = |name| answer.header(name).to_owned();
        workers.push((header("x-request-id"), header("x-conductor-worker")));
    }
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(router.path("shadows.jsonl")).unwrap_or_default();
        // The last may be half-written.
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    };
    harness::eventually("all are written", || async { lines().len() == 7 }).await;
    let lines = lines();
    assert!(lines[0]["log"]["run"].is_string());
    let policies = router.admin("/admin/policies").await.unwrap();
    let version = |name: &str| {
        let mut policies = policies["policies"].as_array().unwrap().iter();
        policies.find(|policy| policy["name"] == name).unwrap()["version"].clone()
    };
    for (line, (id, worker)) in lines[1..].iter().zip(&workers) {
        let line = &line["shadow"];
        assert_eq!(
            (&line["request"], &line["active"]["worker"]),
            (&json!(id), &json!(worker))
        );
        assert_eq!(line["active"]["policy"], "round-robin");
        assert_eq!(line["active"]["version"], version("round-robin"));
        assert_eq!(line["shadow"]["policy"], "load-weighted");
        assert_eq!(line["shadow"]["version"], version("load-weighted (shadow)"));
        let agreed = line["shadow"]["worker"] == line["active"]["worker"];
        assert_eq!(line["result"] == "agreed", agreed, "{line}");
        assert!(
            line["shadow"]["tokens-ahead"].is_u64() && line["fault"].is_null(),
            "{line}"
        );
    }
}

#[tokio::test]
async fn the_admin_listener_has_an_index_whose_pages_are_all_there() {
    let fleet = fast_fleet(1).await;
    let toml = format!("{}{}", fleet.workers_toml(), route_all("round-robin"));
    let router = TestRouter::start(&toml).await.unwrap();
    let index = router.admin("/").await.unwrap();
    assert_eq!(router.admin("/admin").await.unwrap(), index);
    let pages = index["pages"].as_array().unwrap();
    assert!(pages.iter().any(|page| page["path"] == "/admin/feeds"), "{index}");
    for page in pages {
        let path = page["path"].as_str().unwrap();
        let path = path.replace("{policy}", "round-robin").replace("{*id}", "none");
        let path = path.replace("{id}", "1");
        if path == "/admin/stream" {
            // Its answer has no end.
            let stream = router
                .admin
                .stream(http::Method::GET, &path, &[], bytes::Bytes::new());
            assert_eq!(stream.await.unwrap().status, StatusCode::OK);
            continue;
        }
        let answer = match page["method"].as_str().unwrap() {
            "GET" => router.admin.get(&path).await.unwrap(),
            _ => router.admin.post(&path, &Value::Null).await.unwrap(),
        };
        assert!(
            !answer.text().contains("unknown_path"),
            "{path}: {}",
            answer.text()
        );
    }
    let html = [("accept", "text/html,application/xhtml+xml")];
    let get = http::Method::GET;
    let browser = router
        .admin
        .stream(get.clone(), "/admin", &html, bytes::Bytes::new())
        .await
        .unwrap();
    let browser = browser.whole().await.unwrap();
    assert!(browser.header("content-type").starts_with("text/html"));
    assert_eq!(browser.header("cache-control"), "no-store");
    assert!(
        browser.text().contains("<a href=\"/admin/config\">"),
        "{}",
        browser.text()
    );
    let dashboard = router
        .admin
        .stream(get, "/", &html, bytes::Bytes::new())
        .await
        .unwrap();
    let dashboard = dashboard.whole().await.unwrap();
    assert!(
        dashboard.text().contains("<div id=\"app\">"),
        "{}",
        dashboard.text()
    );
    assert!(
        dashboard
            .header("content-security-policy")
            .contains("trusted-types")
    );
}

#[tokio::test]
async fn an_unknown_admin_path_and_a_wrong_method_list_what_there_is() {
    let fleet = fast_fleet(1).await;
    let toml = format!("{}{}", fleet.workers_toml(), route_all("round-robin"));
    let router = TestRouter::start(&toml).await.unwrap();
    for path in ["/admin/nothing", "/nothing", "/admin/policies/a/b/c"] {
        let answer = router.admin.get(path).await.unwrap();
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        let error = answer.json().unwrap()["error"].clone();
        assert_eq!(error["code"], "unknown_path");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(path) && message.contains("GET /admin/config"),
            "{message}"
        );
    }
    for path in ["/admin", "/admin/config", "/admin/policies", "/admin/feeds"] {
        let answer = router.admin.post(path, &Value::Null).await.unwrap();
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        assert_eq!(answer.json().unwrap()["error"]["code"], "method_not_allowed");
    }
    let reload = router.admin.get("/admin/reload").await.unwrap();
    assert_eq!(reload.json().unwrap()["error"]["code"], "method_not_allowed");
}
