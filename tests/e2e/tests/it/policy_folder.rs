//! Policies dropped into the policy folder while serving.

use harness::{TestRouter, route_all};

use crate::{answered, fast_fleet, router_over};

fn builtin(name: &str) -> &'static [u8] {
    conductor::builtin::find(name).unwrap().bytes
}

fn policy<'a>(page: &'a serde_json::Value, name: &str) -> Option<&'a serde_json::Value> {
    page["policies"]
        .as_array()?
        .iter()
        .find(|policy| policy["name"] == name)
}

#[tokio::test]
async fn a_file_dropped_into_the_folder_becomes_a_policy_that_a_route_can_name() {
    let fleet = fast_fleet(2).await;
    let workers = fleet.workers_toml();
    let router = TestRouter::start(&format!("{workers}{}", route_all("round-robin")))
        .await
        .unwrap();
    router.save_policy("mine", builtin("load-weighted")).unwrap();
    router
        .admin_shows("/admin/policies", "the policy is loaded", |page| {
            policy(page, "mine").is_some()
        })
        .await;
    router
        .save_config(&format!("{workers}{}", route_all("mine")))
        .unwrap();
    router
        .admin_shows("/admin/config", "the route is active", |page| {
            page["generation"].as_u64() >= Some(2)
        })
        .await;
    answered(&router).await;
    router
        .admin_shows("/admin/policies", "it decides", |page| {
            policy(page, "mine").is_some_and(|policy| policy["calls"].as_u64() >= Some(1))
        })
        .await;
}

#[tokio::test]
async fn a_route_may_name_a_policy_whose_file_comes_later() {
    let fleet = fast_fleet(1).await;
    let workers = fleet.workers_toml();
    let router = TestRouter::start(&format!("{workers}{}", route_all("round-robin")))
        .await
        .unwrap();
    router
        .save_config(&format!("{workers}{}", route_all("later")))
        .unwrap();
    router
        .admin_shows("/admin/config", "the missing policy is named", |page| {
            page["problems"].to_string().contains("later")
        })
        .await;
    answered(&router).await;
    router.save_policy("later", builtin("round-robin")).unwrap();
    router
        .admin_shows("/admin/config", "the edit is active", |page| {
            page["generation"].as_u64() >= Some(2) && page["problems"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
    answered(&router).await;
}

#[tokio::test]
async fn a_broken_or_half_written_file_leaves_the_last_good_version_deciding() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    router.save_policy("mine", builtin("round-robin")).unwrap();
    let page = router
        .admin_shows("/admin/policies", "loaded", |page| {
            policy(page, "mine").is_some_and(|policy| policy["sha256"].is_string())
        })
        .await;
    let sha256 = policy(&page, "mine").unwrap()["sha256"].clone();
    router
        .save_config(&format!("{}{}", fleet.workers_toml(), route_all("mine")))
        .unwrap();
    router
        .admin_shows("/admin/config", "generation 2", |page| {
            page["generation"].as_u64() >= Some(2)
        })
        .await;

    let bytes = builtin("load-weighted");
    for broken in [&bytes[..bytes.len() / 2], b"not wasm at all".as_slice(), b""] {
        router.save_policy("mine", broken).unwrap();
        let page = router
            .admin_shows("/admin/policies", "the problem is shown", |page| {
                policy(page, "mine").is_some_and(|policy| policy["problem"].is_string())
            })
            .await;
        assert_eq!(
            policy(&page, "mine").unwrap()["sha256"],
            sha256,
            "the last good version stays"
        );
        answered(&router).await;
    }
    router.save_policy("mine", bytes).unwrap();
    router
        .admin_shows("/admin/policies", "the whole file is active", |page| {
            policy(page, "mine")
                .is_some_and(|policy| policy["problem"].is_null() && policy["sha256"] != sha256)
        })
        .await;
    answered(&router).await;
}

#[tokio::test]
async fn a_policy_whose_file_is_deleted_goes_on_and_is_well_again_when_it_is_put_back() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    router.save_policy("mine", builtin("load-weighted")).unwrap();
    router
        .admin_shows("/admin/policies", "loaded", |page| {
            policy(page, "mine").is_some_and(|policy| policy["sha256"].is_string())
        })
        .await;
    router
        .save_config(&format!("{}{}", fleet.workers_toml(), route_all("mine")))
        .unwrap();
    router
        .admin_shows("/admin/config", "the route is active", |page| {
            page["generation"] == 2
        })
        .await;
    let problem_is = |page: &serde_json::Value, wanted: bool| {
        policy(page, "mine").is_some_and(|policy| policy["problem"].is_string() == wanted)
    };
    std::fs::remove_file(router.path("policies/mine.wasm")).unwrap();
    router
        .admin_shows("/admin/policies", "the file is missed", |page| {
            problem_is(page, true)
        })
        .await;
    answered(&router).await;
    router.save_policy("mine", builtin("load-weighted")).unwrap();
    router
        .admin_shows("/admin/policies", "the file is back", |page| {
            problem_is(page, false)
        })
        .await;
}

#[tokio::test]
async fn a_policy_that_left_the_folder_and_no_route_names_is_forgotten() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    router.save_policy("mine", builtin("load-weighted")).unwrap();
    router
        .admin_shows("/admin/policies", "loaded", |page| policy(page, "mine").is_some())
        .await;
    std::fs::remove_file(router.path("policies/mine.wasm")).unwrap();
    router
        .admin_shows("/admin/policies", "forgotten", |page| {
            policy(page, "mine").is_none()
        })
        .await;
}
