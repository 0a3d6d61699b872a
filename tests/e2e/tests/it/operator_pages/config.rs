//! `/admin/config/history`, `/admin/config/file` and `/admin/config/check`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use bytes::Bytes;
use harness::{Answer, Fleet, TestRouter, route_all};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{KEY, get, server_key};
use crate::{fast_fleet, router_with};

const ADMIN: (&str, &str) = ("x-api-key", KEY);

async fn keyed(fleet: &Fleet) -> TestRouter {
    router_with(&server_key(), fleet, "round-robin").await
}

async fn file(router: &TestRouter) -> Value {
    let answer = get(&router.admin, "/admin/config/file", &[ADMIN]).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json().unwrap()
}

async fn send(router: &TestRouter, method: Method, path: &str, sent: (&[(&str, &str)], &str)) -> Answer {
    let (headers, body) = sent;
    let body = Bytes::from(body.to_owned());
    let stream = router.admin.stream(method, path, headers, body).await;
    stream.unwrap().whole().await.unwrap()
}

/// Puts a text that was made from the file with this hash.
async fn put(router: &TestRouter, text: &str, sha256: &str) -> Answer {
    let headers = [ADMIN, ("if-match", sha256)];
    let body = json!({ "text": text, "reason": "a test" }).to_string();
    send(router, Method::PUT, "/admin/config/file", (&headers, &body)).await
}

async fn generation(router: &TestRouter) -> Value {
    router.admin("/admin/config").await.unwrap()["generation"].clone()
}

#[tokio::test]
async fn an_edit_is_written_with_its_mode_applied_once_and_noted_with_its_reason() {
    let fleet = fast_fleet(1).await;
    let router = keyed(&fleet).await;
    let path = router.path("conductor.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let page = file(&router).await;
    assert_eq!(
        (&page["writable"], &page["reason"]),
        (&json!(true), &Value::Null),
        "{page}"
    );
    let text = page["text"]
        .as_str()
        .unwrap()
        .replace("round-robin", "least-request");

    let answer = put(&router, &text, page["sha256"].as_str().unwrap()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let applied = answer.json().unwrap();
    assert_eq!(
        (&applied["outcome"], &applied["generation"]),
        (&json!("applied"), &json!(2))
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);

    // A look at the files that surely came after the rename.
    let again = send(&router, Method::POST, "/admin/reload", (&[ADMIN], "")).await;
    assert_eq!(again.json().unwrap()["outcome"], "unchanged");
    assert_eq!(generation(&router).await, 2);
    let history = router.admin("/admin/config/history").await.unwrap();
    let rows = history["generations"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{history}");
    let row = &rows[0];
    assert_eq!(
        (&row["cause"], &row["by"], &row["generation"], &row["result"]),
        (&json!("api"), &json!("a test"), &json!(2), &json!("applied"))
    );
    let diff = router
        .admin(&format!("/admin/config/history/{}/diff", row["id"]))
        .await
        .unwrap();
    assert_eq!(diff["against"], rows[1]["id"], "{diff}");
    let lines: Vec<_> = diff["diff"].as_str().unwrap().lines().collect();
    let has = |sign: &str, policy: &str| {
        lines
            .iter()
            .any(|line| line.starts_with(sign) && line.contains(policy))
    };
    assert!(has("-", "round-robin") && has("+", "least-request"), "{diff}");
}

#[tokio::test]
async fn a_refused_edit_changes_nothing_but_the_history() {
    let fleet = fast_fleet(1).await;
    let router = keyed(&fleet).await;
    let page = file(&router).await;
    let (text, sha256) = (page["text"].as_str().unwrap(), page["sha256"].as_str().unwrap());
    for broken in [text.replace("round-robin", "nothing"), format!("{text}[[")] {
        let answer = put(&router, &broken, sha256).await;
        assert_eq!(
            answer.status,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{}",
            answer.text()
        );
        let refused = answer.json().unwrap();
        assert_eq!(refused["error"]["code"], "config_refused");
        assert!(refused["problems"][0]["line"].as_u64() > Some(0), "{refused}");
    }
    assert_eq!(file(&router).await, page);
    let config = router.admin("/admin/config").await.unwrap();
    assert_eq!(
        (&config["problems"], &config["reloads_refused"]),
        (&json!([]), &json!(0)),
        "{config}"
    );
    assert_eq!(config["generation"], 1);
    let history = router.admin("/admin/config/history").await.unwrap();
    assert_eq!(history["generations"][0]["result"], "refused", "{history}");
    assert_eq!(history["generations"][0]["generation"], Value::Null, "{history}");
    let leftovers = fs::read_dir(router.path("")).unwrap();
    let leftovers =
        leftovers.filter(|entry| entry.as_ref().unwrap().path().extension() == Some("saving".as_ref()));
    assert_eq!(leftovers.count(), 0);
}

#[tokio::test]
async fn of_two_edits_of_one_text_the_second_is_refused() {
    let fleet = fast_fleet(1).await;
    let router = keyed(&fleet).await;
    let page = file(&router).await;
    let (text, sha256) = (page["text"].as_str().unwrap(), page["sha256"].as_str().unwrap());
    let (one, two) = (format!("{text}# one\n"), format!("{text}# two\n"));
    let (one, two) = tokio::join!(put(&router, &one, sha256), put(&router, &two, sha256));
    let mut statuses = [one.status, two.status];
    statuses.sort();
    assert_eq!(statuses, [StatusCode::OK, StatusCode::PRECONDITION_FAILED]);
    let refused = [one, two].into_iter().find(|answer| !answer.status.is_success());
    assert_eq!(
        refused.unwrap().json().unwrap()["error"]["code"],
        "config_changed"
    );
    assert_eq!(generation(&router).await, 2);
}

#[tokio::test]
async fn an_edit_of_a_file_that_moved_is_refused() {
    let fleet = fast_fleet(1).await;
    let router = keyed(&fleet).await;
    let page = file(&router).await;
    let text = format!("{}{}{}", server_key(), fleet.workers_toml(), route_all("random"));
    router.save_config(&text).unwrap();
    let sha256 = page["sha256"].as_str().unwrap();
    let answer = put(&router, page["text"].as_str().unwrap(), sha256).await;
    assert_eq!(
        answer.status,
        StatusCode::PRECONDITION_FAILED,
        "{}",
        answer.text()
    );
    assert!(file(&router).await["text"].as_str().unwrap().contains("random"));
}

#[tokio::test]
async fn an_edit_needs_the_key_and_the_hash_and_a_body_within_bounds() {
    let fleet = fast_fleet(1).await;
    let router = keyed(&fleet).await;
    let page = file(&router).await;
    let sha256 = page["sha256"].as_str().unwrap();
    let body = json!({ "text": page["text"] }).to_string();
    let put = async |headers: &[(&str, &str)], body: &str| {
        let answer = send(&router, Method::PUT, "/admin/config/file", (headers, body)).await;
        let code = answer.json().unwrap()["error"]["code"].clone();
        (answer.status.as_u16(), code)
    };
    let refused = |status: u16, code: &str| (status, json!(code));
    assert_eq!(
        put(&[("if-match", sha256)], &body).await,
        refused(401, "invalid_api_key")
    );
    assert_eq!(put(&[ADMIN], &body).await, refused(428, "if_match_missing"));
    let headers = [ADMIN, ("if-match", sha256)];
    assert_eq!(put(&headers, "{").await, refused(400, "invalid_json"));
    assert_eq!(
        put(&headers, "{\"text\": \"\", \"x\": 1}").await,
        refused(400, "invalid_json")
    );
    let long = json!({ "text": "#".repeat(5 << 20) }).to_string();
    assert_eq!(put(&headers, &long).await, refused(413, "body_too_large"));
    let unread = get(&router.admin, "/admin/config/file", &[]).await;
    assert_eq!(unread.status, StatusCode::UNAUTHORIZED);
    let other = send(&router, Method::POST, "/admin/config/file", (&[ADMIN], "")).await;
    assert_eq!(
        (other.status, other.header("allow")),
        (StatusCode::METHOD_NOT_ALLOWED, "GET, PUT")
    );
}

#[tokio::test]
async fn without_an_admin_key_the_file_is_read_without_secrets_and_not_edited() {
    let fleet = fast_fleet(1).await;
    let router = router_with("", &fleet, "round-robin").await;
    let page = get(&router.admin, "/admin/config/file", &[])
        .await
        .json()
        .unwrap();
    assert_eq!(
        (&page["sha256"], &page["writable"]),
        (&Value::Null, &json!(false))
    );
    let body = json!({ "text": page["text"] }).to_string();
    let headers = [("if-match", "5d41"), ("content-type", "application/json")];
    for (method, path) in [
        (Method::PUT, "/admin/config/file"),
        (Method::POST, "/admin/config/check"),
    ] {
        let answer = send(&router, method, path, (&headers, &body)).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(
            answer.json().unwrap()["error"]["code"],
            "admin_api_key_not_set",
            "{path}"
        );
    }
    let name = [("host", "router.example")];
    let rebound = get(&router.admin, "/admin/config/file", &name).await;
    assert_eq!(rebound.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_check_has_problems_changes_and_the_difference_and_changes_nothing() {
    let fleet = fast_fleet(2).await;
    let router = keyed(&fleet).await;
    let page = file(&router).await;
    let text = page["text"].as_str().unwrap();
    let check = async |text: &str| {
        let body = json!({ "text": text }).to_string();
        let answer = send(&router, Method::POST, "/admin/config/check", (&[ADMIN], &body)).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        answer.json().unwrap()
    };
    let same = check(text).await;
    assert_eq!(
        (&same["valid"], &same["changes"], &same["diff"]),
        (&json!(true), &json!([]), &json!(""))
    );

    let valid = check(&text.replace("w1", "w9")).await;
    assert_eq!(valid["valid"], true, "{valid}");
    assert_eq!(
        valid["changes"],
        json!(["workers: 1 added (w9), 1 removed (w1)"]),
        "{valid}"
    );
    assert!(
        valid["diff"].as_str().unwrap().contains("+name = \"w9\""),
        "{valid}"
    );

    let invalid = check(&text.replace("round-robin", "nothing")).await;
    assert_eq!(
        (&invalid["valid"], &invalid["changes"]),
        (&json!(false), &json!([])),
        "{invalid}"
    );
    assert!(invalid["problems"][0]["column"].as_u64() > Some(0), "{invalid}");
    let broken = check("[[").await;
    assert_eq!(
        (&broken["valid"], &broken["diff"]),
        (&json!(false), &Value::Null),
        "{broken}"
    );

    assert_eq!(file(&router).await, page);
    assert_eq!(generation(&router).await, 1);
    let history = router.admin("/admin/config/history").await.unwrap();
    assert_eq!(history["generations"].as_array().unwrap().len(), 1, "{history}");
}

#[tokio::test]
async fn a_file_behind_a_link_is_not_writable() {
    let fleet = fast_fleet(1).await;
    let router = keyed(&fleet).await;
    let (path, target) = (router.path("conductor.toml"), router.path("target.toml"));
    fs::rename(&path, &target).unwrap();
    symlink(&target, &path).unwrap();
    let page = file(&router).await;
    assert_eq!(page["writable"], false, "{page}");
    assert!(
        page["reason"].as_str().unwrap().contains("symbolic link"),
        "{page}"
    );
    let text = format!("{}# more\n", page["text"].as_str().unwrap());
    let answer = put(&router, &text, page["sha256"].as_str().unwrap()).await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert_eq!(answer.json().unwrap()["error"]["code"], "config_not_writable");
    assert!(!fs::read_to_string(&target).unwrap().contains("# more"));
}

#[tokio::test]
async fn no_secret_of_an_edit_is_on_a_page_that_needs_no_key() {
    let fleet = fast_fleet(1).await;
    let router = keyed(&fleet).await;
    let page = file(&router).await;
    let text = format!(
        "{}\n[[routes]]\nmatch = {{ header = {{ x-team = \"hush-1\" }} }}\npool = \"chat\"\n# api-key = \"hush-2\"\n",
        page["text"].as_str().unwrap()
    );
    let applied = put(&router, &text, page["sha256"].as_str().unwrap()).await;
    assert_eq!(applied.status, StatusCode::OK, "{}", applied.text());
    let sha256 = file(&router).await["sha256"].as_str().unwrap().to_owned();
    let refused = put(
        &router,
        &format!("{text}[indexer]\napi-key = \"hush-3\"\nx = 1\n"),
        &sha256,
    )
    .await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let mut paths = vec![
        "/admin/config/history".to_owned(),
        "/admin/changes".to_owned(),
        "/admin/config".to_owned(),
    ];
    let ids = (1..=3).map(|id| format!("/admin/config/history/{id}/diff"));
    paths.extend(ids);
    for path in paths {
        let text = get(&router.admin, &path, &[]).await.text();
        assert!(!text.contains("hush"), "{path}: {text}");
    }
    let missing = get(&router.admin, "/admin/config/history/99/diff", &[]).await;
    assert_eq!(missing.json().unwrap()["error"]["code"], "config_text_not_found");
}
