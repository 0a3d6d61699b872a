//! Uploads of policies.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;

use bytes::Bytes;
use harness::{HOSTILE, TestRouter, eventually_ok, route_all, sends_to};
use http::{Method, StatusCode};
use serde_json::Value;

use crate::fast_fleet;

const KEY: &str = "sk-of-the-uploader";
const WASM: (&str, &str) = ("content-type", "application/wasm");

/// Starts a router with an admin key in a file of this folder.
async fn with_key(folder: &Path, more: &str) -> (harness::Fleet, TestRouter) {
    let key = folder.join("admin.key");
    std::fs::write(&key, KEY).unwrap();
    let fleet = fast_fleet(2).await;
    let toml = format!(
        "admin-api-key = {{ file = {key:?} }}\n{more}\n{}{}",
        fleet.workers_toml(),
        route_all("round-robin")
    );
    let router = TestRouter::start(&toml).await.unwrap();
    (fleet, router)
}

async fn put(
    router: &TestRouter,
    name: &str,
    headers: &[(&str, &str)],
    bytes: impl Into<Bytes>,
) -> (StatusCode, Value) {
    let path = format!("/admin/policies/{name}");
    let sent = router
        .admin
        .stream(Method::PUT, &path, headers, bytes.into())
        .await;
    let answer = sent.unwrap().whole().await.unwrap();
    (answer.status, answer.json().unwrap())
}

async fn upload(router: &TestRouter, name: &str, bytes: impl Into<Bytes>) -> (StatusCode, Value) {
    put(router, name, &[WASM, ("x-api-key", KEY)], bytes).await
}

/// Returns a policy that passes the trial of a load, and chooses a row that no scenario has.
fn wrong_index() -> Vec<u8> {
    let mut hostile = HOSTILE.iter();
    let policy = hostile.find(|policy| policy.name == "wrong index").unwrap();
    policy.component().unwrap()
}

#[tokio::test]
async fn an_upload_that_passes_the_scenarios_is_active_when_it_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (_fleet, router) = with_key(folder.path(), "").await;
    let mut versions = Vec::new();
    for version in 1..=2 {
        let component = sends_to(0, version).unwrap();
        let (status, answer) = upload(&router, "mine", component.clone()).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(
            (&answer["policy"], &answer["active"]),
            (&"mine".into(), &true.into()),
            "{answer}"
        );
        let scenarios = answer["scenarios"].as_array().unwrap();
        assert!(
            scenarios.len() > 10 && scenarios.iter().all(|of| of["passed"] == true),
            "{answer}"
        );
        let file = router.path("policies/mine.wasm");
        assert_eq!(std::fs::read(&file).unwrap(), component);
        assert_eq!(answer["file"].as_str().map(Path::new), Some(&*file));
        versions.push(answer["version"].as_str().unwrap().to_owned());
    }
    assert_ne!(versions[0], versions[1]);
    let page = router.admin("/admin/policies").await.unwrap();
    let policies = page["policies"].as_array().unwrap();
    let mine = policies.iter().find(|policy| policy["name"] == "mine").unwrap();
    assert_eq!(mine["version"], *versions[1]);
}

#[tokio::test]
async fn a_refused_upload_has_a_reason_and_leaves_the_file_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (_fleet, router) = with_key(folder.path(), "[policies.own]\nbuiltin = \"load-weighted\"\n").await;
    let good = sends_to(0, 1).unwrap();
    let (status, _) = upload(&router, "mine", good.clone()).await;
    assert_eq!(status, StatusCode::OK);
    let module = b"\0asm\x01\0\0\0".to_vec();
    let other_world = b"\0asm\x0d\0\x01\0".to_vec();
    for (bytes, problem) in [
        (b"garbage".to_vec(), "not-loadable"),
        (Vec::new(), "not-loadable"),
        (module, "not-loadable"),
        (other_world, "not-loadable"),
        (good[..good.len() / 2].to_vec(), "not-loadable"),
        (wrong_index(), "scenarios-failed"),
    ] {
        let (status, refused) = upload(&router, "mine", bytes).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
        assert_eq!(refused["error"]["code"], "policy_refused", "{refused}");
        let codes: Vec<_> = (refused["problems"].as_array().unwrap().iter())
            .map(|problem| problem["code"].as_str().unwrap())
            .collect();
        assert!(codes.contains(&problem), "{refused}");
    }
    let (status, refused) = upload(&router, "mine", vec![0; (16 << 20) + 1]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{refused}");
    for (name, status, code) in [
        ("round-robin", 409, "not_in_policy_dir"),
        ("own", 409, "not_in_policy_dir"),
        ("..", 400, "policy_name_invalid"),
        ("%2e%2e%2fmine", 400, "policy_name_invalid"),
        (".hidden", 400, "policy_name_invalid"),
    ] {
        let (found, refused) = upload(&router, name, good.clone()).await;
        assert_eq!(found.as_u16(), status, "{name}: {refused}");
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    assert_eq!(std::fs::read(router.path("policies/mine.wasm")).unwrap(), good);
    assert_eq!(std::fs::read_dir(router.path("policies")).unwrap().count(), 1);
    let page = router.admin("/admin/policies").await.unwrap();
    assert!(!page.to_string().contains("hidden"), "{page}");
}

#[tokio::test]
async fn an_upload_needs_the_admin_key_and_its_content_type() {
    let folder = tempfile::tempdir().unwrap();
    let (_fleet, router) = with_key(folder.path(), "").await;
    let good = sends_to(0, 1).unwrap();
    let key = ("x-api-key", KEY);
    for (headers, status) in [
        (vec![WASM], 401),
        (vec![WASM, ("x-api-key", "wrong")], 401),
        (vec![key], 415),
    ] {
        let (found, refused) = put(&router, "mine", &headers, good.clone()).await;
        assert_eq!(found.as_u16(), status, "{refused}");
    }
    let answer = router.admin.get("/admin/policies/mine").await.unwrap();
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    let open = crate::router_over(&fast_fleet(1).await, "round-robin").await;
    let (status, refused) = put(&open, "mine", &[WASM], good).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");
    assert_eq!(refused["error"]["code"], "admin_api_key_not_set", "{refused}");
    for router in [&router, &open] {
        assert!(!router.path("policies/mine.wasm").exists());
    }
}

#[tokio::test]
async fn a_second_upload_is_refused_while_one_is_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let (_fleet, router) = with_key(folder.path(), "").await;
    let address = router.admin.base().trim_start_matches("http://").to_owned();
    // Its body never comes to its end.
    let head = format!(
        "PUT /admin/policies/slow HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/wasm\r\nx-api-key: {KEY}\r\n\
         content-length: 1000\r\n\r\n\0asm"
    );
    let good = sends_to(0, 1).unwrap();
    let first = eventually_ok("the second is refused", || async {
        let mut first = TcpStream::connect(&address).unwrap();
        first.write_all(head.as_bytes()).unwrap();
        // Meanwhile the head of the first arrives. It has the turn then.
        for _ in 0..5 {
            router.admin("/admin/config").await.unwrap();
        }
        let (status, refused) = upload(&router, "mine", good.clone()).await;
        match (status, &refused["error"]["code"]) {
            (StatusCode::CONFLICT, code) if code == "upload_running" => Ok(first),
            _ => Err(refused.to_string()),
        }
    })
    .await;
    drop(first);
    eventually_ok("the next is taken", || async {
        let (status, answer) = upload(&router, "mine", good.clone()).await;
        if status == StatusCode::OK {
            Ok(())
        } else {
            Err(answer.to_string())
        }
    })
    .await;
}
