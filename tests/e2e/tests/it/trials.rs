//! Introduction of a policy: added to the folder, run as a shadow, assigned half of the sessions, and stopped.

use bytes::Bytes;
use harness::{Fleet, TestRouter};
use http::{Method, StatusCode};
use mock_engine::MockConfig;
use serde_json::Value;

use crate::{chat, fast};

/// Starts three fast engines, and one that takes 200 ms for each prompt: far more than a request waits for a busy
/// processor, which would hide a smaller difference.
async fn uneven_fleet() -> Fleet {
    let adjust = |number, config: &mut MockConfig| {
        fast(number, config);
        if number == 3 {
            config.cost.prefill_fixed_ms = 200.0 * config.time_scale;
        }
    };
    Fleet::start(4, adjust).await.unwrap()
}

/// Returns the workers. `load-weighted` sends everything to the slow one, as long as it has less than a thousand times
/// the requests of another.
fn workers(fleet: &Fleet) -> String {
    format!("{}\nweight = 1000.0\n\n", fleet.workers_toml().trim_end())
}

fn route(more: &str) -> String {
    format!("[[routes]]\npool = \"chat\"\npolicy = \"round-robin\"\n{more}")
}

fn builtin(name: &str) -> &'static [u8] {
    conductor::builtin::find(name).unwrap().bytes
}

/// Sends a streamed request of that session, and checks its answer.
async fn request(router: &TestRouter, session: usize) {
    let (name, body) = (format!("session-{session}"), chat("hi", true));
    let headers = [("x-session-id", name.as_str())];
    let body = Bytes::from(body.to_string());
    let stream = router
        .client
        .stream(Method::POST, "/v1/chat/completions", &headers, body);
    let answer = stream.await.unwrap().whole().await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
}

fn arm<'p>(page: &'p Value, policy: &str) -> &'p Value {
    let arms = page["trials"][0]["arms"].as_array().unwrap();
    arms.iter().find(|arm| arm["policy"] == policy).unwrap()
}

async fn in_force(router: &TestRouter, config: &str, generation: u64) {
    router.save_config(config).unwrap();
    let is_there = |page: &Value| page["generation"].as_u64() >= Some(generation);
    router
        .admin_shows("/admin/config", "the edit is active", is_there)
        .await;
}

#[tokio::test]
async fn a_policy_is_tried_as_a_shadow_then_on_half_of_the_sessions_and_stopped_without_a_failed_request() {
    let fleet = uneven_fleet().await;
    let workers = workers(&fleet);
    let router = TestRouter::start(&format!("{workers}{}", route("")))
        .await
        .unwrap();
    router.save_policy("mine", builtin("load-weighted")).unwrap();
    let shadowed = format!("{workers}{}", route("shadow = [\"mine\"]\nshadow-sample = 1.0\n"));
    in_force(&router, &shadowed, 2).await;
    for session in 0..8 {
        request(&router, session).await;
    }
    let page = router
        .admin_shows("/admin/trials", "the shadow has decided", |page| {
            let decisions = &page["shadows"][0]["decisions"];
            decisions["agreed"].as_u64().unwrap_or(0) + decisions["differed"].as_u64().unwrap_or(0) == 8
        })
        .await;
    let shadow = &page["shadows"][0];
    assert_eq!(
        (&shadow["policy"], &shadow["dropped"]),
        (&"mine".into(), &0.into())
    );
    assert_eq!(
        shadow["decisions"]["differed"], 6,
        "round-robin goes there every fourth time"
    );
    assert_eq!(shadow["disagreements"][0]["shadow"]["worker"], "w3");
    router
        .admin_shows("/admin/policies", "the shadow is listed", |page| {
            page.to_string().contains("mine (shadow)")
        })
        .await;

    let canary = "split = { round-robin = 50, mine = 50 }\ncanary = { ttft-margin = 0.5, least = 12 }\n";
    let split = format!("{workers}{}", route(canary));
    in_force(&router, &split, 3).await;
    let stopped = stop_by_requests(&router).await;
    let mine = arm(&stopped, "mine");
    assert_eq!(
        (&mine["verdict"], &mine["stopped"]["look"]["measure"]),
        (&"worse".into(), &"ttft".into())
    );
    assert!(
        mine["stopped"]["look"]["at_least"].as_f64() > Some(0.5),
        "it is worse beyond the margin: {stopped}"
    );
    let metrics = router.admin.get("/metrics").await.unwrap().text();
    let gauge = "conductor_canary_stopped{pool=\"chat\",route=\"*\",policy=\"mine\"} 1";
    assert!(metrics.contains(gauge), "{metrics}");

    // Its sessions are the control's, over a reload too.
    in_force(&router, &format!("# again\n{split}"), 4).await;
    for session in 0..12 {
        request(&router, session).await;
    }
    let page = router.admin("/admin/trials").await.unwrap();
    assert_eq!(
        (&arm(&page, "mine")["requests"], &arm(&page, "mine")["state"]),
        (&mine["requests"], &"stopped".into())
    );

    resume(&router).await;
    let page = router.admin("/admin/trials").await.unwrap();
    assert_eq!(
        (&arm(&page, "mine")["state"], &arm(&page, "mine")["verdict"]),
        (&"running".into(), &"too-few".into())
    );
    stop_by_requests(&router).await;

    // Other bytes are another policy.
    router.save_policy("mine", builtin("round-robin")).unwrap();
    router
        .admin_shows("/admin/trials", "the new version runs", |page| {
            arm(page, "mine")["state"] == "running"
        })
        .await;
    let failed = router.admin("/admin/trials").await.unwrap();
    for policy in ["mine", "round-robin"] {
        assert_eq!(arm(&failed, policy)["failed"], 0);
    }
}

/// Sends requests of ever other sessions until the canary is stopped, and gives the page.
async fn stop_by_requests(router: &TestRouter) -> Value {
    for round in 0..40 {
        for session in 0..10 {
            request(router, round * 10 + session).await;
        }
        let page = router.admin("/admin/trials").await.unwrap();
        if arm(&page, "mine")["state"] == "stopped" {
            return page;
        }
    }
    let page = router.admin("/admin/trials").await.unwrap();
    unreachable!("never stopped: {page}")
}

async fn resume(router: &TestRouter) {
    let path = "/admin/canaries/mine/resume";
    let answer = router.admin.post(path, &Value::Null).await.unwrap();
    assert_eq!(
        (answer.status, &answer.json().unwrap()["resumed"]),
        (StatusCode::OK, &1.into())
    );
    let again = router.admin.post(path, &Value::Null).await.unwrap();
    assert_eq!(again.status, StatusCode::NOT_FOUND, "{}", again.text());
}
