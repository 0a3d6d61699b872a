//! An operator rolls a policy back, and resumes it.

use harness::sends_to;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Stage;

pub(super) async fn reload(stage: &Stage) {
    stage
        .router
        .admin
        .post("/admin/reload", &Value::Null)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_rollback_is_active_at_once_and_holds_until_other_bytes_come() {
    let (first, second) = (sends_to(0, 1).unwrap(), sends_to(1, 2).unwrap());
    let stage = Stage::start("", &first).await;
    let first_id = stage.mine().await["version"].clone();
    let second_sha = stage.swap(&second).await["sha256"].clone();
    stage.all_by("w1").await;

    let (status, mine) = stage.post_action("rollback").await;
    assert_eq!(status, StatusCode::OK, "{mine}");
    assert_eq!(mine["version"], first_id);
    assert_eq!(mine["held_back"], json!([second_sha]));
    stage.all_by("w0").await;
    let cause = "conductor_policy_rollbacks_total{policy=\"mine\",cause=\"operator\"}";
    assert_eq!(stage.metric(cause).await, 1.0);

    reload(&stage).await;
    stage.configure("limits = { cpu = \"2ms\" }").await;
    stage.router.save_policy("mine", &second).unwrap();
    reload(&stage).await;
    stage.all_by("w0").await;

    let mine = stage.swap(&sends_to(2, 3).unwrap()).await;
    assert_eq!(mine["held_back"], json!([]));
    stage.all_by("w2").await;
}

#[tokio::test]
async fn a_resumed_version_is_active_again() {
    let stage = Stage::start("", &sends_to(0, 1).unwrap()).await;
    let second = stage.swap(&sends_to(1, 2).unwrap()).await["version"].clone();
    stage.post_action("rollback").await;
    stage.all_by("w0").await;
    let (status, mine) = stage.post_action("resume").await;
    assert_eq!(status, StatusCode::OK, "{mine}");
    assert_eq!(mine["version"], second);
    assert_eq!(mine["held_back"], json!([]));
    stage.all_by("w1").await;
}

#[tokio::test]
async fn a_policy_that_is_resumed_without_its_file_reports_it_and_goes_on() {
    let stage = Stage::start("", &sends_to(0, 1).unwrap()).await;
    stage.swap(&sends_to(1, 2).unwrap()).await;
    stage.post_action("rollback").await;
    std::fs::remove_file(stage.router.path("policies/mine.wasm")).unwrap();
    let (status, refused) = stage.post_action("resume").await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    assert_eq!(refused["error"]["code"], "policy_unavailable", "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("mine.wasm"), "{message}");
    assert_eq!(stage.mine().await["held_back"], json!([]), "held no more");
    stage.all_by("w0").await;
}

#[tokio::test]
async fn an_impossible_rollback_is_refused_with_its_reason() {
    let stage = Stage::start("", &sends_to(0, 1).unwrap()).await;
    let (status, refused) = stage.post_action("rollback").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(refused["error"]["code"], "no_version_before", "{refused}");
    stage.all_by("w0").await;
    for action in ["rollback", "resume"] {
        let path = format!("/admin/policies/nobody/{action}");
        let answer = stage.router.admin.post(&path, &Value::Null).await.unwrap();
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        assert_eq!(answer.json().unwrap()["error"]["code"], "policy_not_found");
        let answer = stage.router.admin.get(&path).await.unwrap();
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    }
}

#[tokio::test]
async fn a_rollback_requests_the_admin_key_as_every_change_does() {
    let stage = Stage::start("", &sends_to(0, 1).unwrap()).await;
    stage.swap(&sends_to(1, 2).unwrap()).await;
    let path = "/admin/policies/mine/rollback";
    let of_a_page = [("origin", "http://evil.example")];
    let answer = stage
        .router
        .admin
        .stream(Method::POST, path, &of_a_page, "{}".into())
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::FORBIDDEN);

    std::fs::write(stage.router.path("admin.key"), "secret\n").unwrap();
    // Completed keys come first in the file: the rest of [server] is on top of it.
    let config = format!(
        "admin-api-key = {{ file = \"admin.key\" }}\n\n{}",
        stage.config("")
    );
    stage.router.save_config(&config).unwrap();
    reload(&stage).await;
    let admin = &stage.router.admin;
    let post_action = |key: &'static str| async move {
        let headers = [("x-api-key", key)];
        let headers = if key.is_empty() { &[][..] } else { &headers[..] };
        let answer = admin.stream(Method::POST, path, headers, "{}".into()).await;
        answer.unwrap().status
    };
    assert_eq!(post_action("").await, StatusCode::UNAUTHORIZED);
    assert_eq!(post_action("wrong").await, StatusCode::UNAUTHORIZED);
    assert_eq!(post_action("secret").await, StatusCode::OK);
}
