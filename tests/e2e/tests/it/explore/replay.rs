//! Recorded calls, decided again by other policies.

use harness::{TestRouter, route_all, sends_to};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{chat, fast_fleet};

async fn router(record: &str) -> (harness::Fleet, TestRouter) {
    let fleet = fast_fleet(3).await;
    let toml = format!(
        "[record]\nexplain-sample = 1.0\n{record}\n[policies.weighted]\nbuiltin = \"load-weighted\"\n{}{}",
        fleet.workers_toml(),
        route_all("round-robin")
    );
    let router = TestRouter::start(&toml).await.unwrap();
    (fleet, router)
}

async fn send_request(router: &TestRouter) -> String {
    let body = chat("hi", false);
    let answer = router.client.post("/v1/chat/completions", &body).await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.header("x-request-id").to_owned()
}

async fn replay(router: &TestRouter, id: &str, body: &Value) -> (StatusCode, Value) {
    let path = format!("/admin/explain/{id}/replay");
    let answer = router.admin.post(&path, body).await.unwrap();
    (answer.status, answer.json().unwrap())
}

async fn policy(router: &TestRouter, name: &str) -> Value {
    let page = router.admin("/admin/policies").await.unwrap();
    let policies = page["policies"].as_array().unwrap();
    policies
        .iter()
        .find(|policy| policy["name"] == name)
        .unwrap()
        .clone()
}

#[tokio::test]
async fn another_policy_decides_a_recorded_call_without_effect() {
    let (_fleet, router) = router("columns = \"all\"").await;
    router.save_policy("last", &sends_to(2, 1).unwrap()).unwrap();
    router
        .admin_shows("/admin/policies", "the policy is loaded", |page| {
            let policies = page["policies"].as_array().unwrap();
            policies
                .iter()
                .any(|policy| policy["name"] == "last" && policy["version"].is_string())
        })
        .await;
    let id = send_request(&router).await;
    let explained = router.admin(&format!("/admin/explain/{id}")).await.unwrap();
    let call = &explained["calls"][0];
    let (status, replayed) = replay(&router, &id, &json!({ "policy": "last" })).await;
    assert_eq!(status, StatusCode::OK, "{replayed}");
    assert_eq!(replayed["verdict"], "route");
    let candidates = replayed["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 3);
    assert_eq!(replayed["worker"], call["candidates"][2]["worker"]);
    assert_eq!(candidates[2]["chosen"], "answers");
    assert_eq!(candidates[0]["numbers"], call["candidates"][0]["numbers"]);
    assert_eq!(replayed["version"], policy(&router, "last").await["version"]);
    let original = &replayed["original"];
    assert_eq!(original["policy"], "round-robin");
    let chosen = call["candidates"].as_array().unwrap().iter();
    let chosen = chosen.filter(|candidate| candidate["chosen"] == "answers");
    assert_eq!(
        chosen.map(|candidate| &candidate["worker"]).collect::<Vec<_>>(),
        [&original["worker"]]
    );
    assert_eq!(
        replayed["agrees"],
        json!(replayed["worker"] == original["worker"])
    );

    // A live policy counts no call of a replay, and its turn stays where it is.
    let before = policy(&router, "round-robin").await["calls"].clone();
    for _ in 0..3 {
        let (status, again) = replay(&router, &id, &json!({ "policy": "round-robin" })).await;
        assert_eq!(status, StatusCode::OK, "{again}");
    }
    assert_eq!(policy(&router, "round-robin").await["calls"], before);
    assert_eq!(policy(&router, "last").await["calls"], 0);
}

#[tokio::test]
async fn an_impossible_replay_is_refused_with_its_reason() {
    let (_fleet, router) = router("").await;
    let id = send_request(&router).await;
    for (id, body, status, code) in [
        ("none", json!({ "policy": "weighted" }), 404, "request_not_kept"),
        (&id, json!({ "policy": "none" }), 404, "policy_not_found"),
        (&id, json!({}), 400, "parameter_invalid"),
        (
            &id,
            json!({ "policy": "weighted", "call": 9 }),
            400,
            "parameter_invalid",
        ),
        (&id, json!({ "policy": "weighted" }), 409, "not_comparable"),
    ] {
        let (found, refused) = replay(&router, id, &body).await;
        assert_eq!(found.as_u16(), status, "{refused}");
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    let answer = router
        .admin
        .post(&format!("/admin/explain/{id}"), &json!({}))
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
}
