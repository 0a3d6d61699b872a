//! Only the bytes that a configuration lets in are loaded.

use harness::sends_to;
use serde_json::Value;

use super::Stage;
use super::rollback::reload;

async fn sha_of(stage: &Stage) -> String {
    stage.mine().await["sha256"].as_str().unwrap().to_owned()
}

/// Returns the hash in the problem of a policy whose bytes are refused.
fn refused_hash(policy: &Value) -> &str {
    let problem = policy["problem"].as_str().unwrap();
    let mut words = problem.split(' ').map(|word| word.trim_end_matches(','));
    words.find(|word| word.len() == 64).unwrap()
}

#[tokio::test]
async fn other_bytes_than_the_pinned_ones_are_refused_with_their_hash() {
    let stage = Stage::start("", &sends_to(0, 1).unwrap()).await;
    let first = sha_of(&stage).await;
    stage.configure(&format!("sha256 = \"{first}\"")).await;
    let other = sends_to(1, 2).unwrap();
    stage.router.save_policy("mine", &other).unwrap();
    let refused = stage
        .shows("the bytes are refused", |mine| mine["problem"].is_string())
        .await;
    assert_eq!(refused["sha256"], first);
    stage.all_by("w0").await;

    // The hash to pin it to is in the message.
    stage
        .configure(&format!("sha256 = \"{}\"", refused_hash(&refused)))
        .await;
    stage
        .shows("it is active", |mine| mine["problem"].is_null())
        .await;
    stage.all_by("w1").await;
}

#[tokio::test]
async fn a_pin_that_the_file_does_not_fit_is_refused_at_its_place() {
    let stage = Stage::start("", &sends_to(0, 1).unwrap()).await;
    let pinned = format!("sha256 = \"{}\"", "0".repeat(64));
    stage.router.save_config(&stage.config(&pinned)).unwrap();
    let page = stage
        .router
        .admin_shows("/admin/config", "the pin is refused", |page| {
            let problems = page["problems"].to_string();
            // A file that was saved just now is first waited for.
            page["problems"] != Value::Array(vec![]) && !problems.contains("still being written")
        })
        .await;
    let text = std::fs::read_to_string(stage.router.path("conductor.toml")).unwrap();
    let line = 1 + text.lines().position(|line| line == pinned).unwrap() as u64;
    assert_eq!(
        (&page["problems"][0]["line"], &page["problems"][0]["column"]),
        (&line.into(), &10.into()),
        "{page}"
    );
    assert!(
        page["problems"].to_string().contains(&sha_of(&stage).await),
        "{page}"
    );
    stage.all_by("w0").await;
}

#[tokio::test]
async fn a_file_that_is_not_on_the_folders_list_is_refused_with_its_hash() {
    let stage = Stage::start("", &sends_to(0, 1).unwrap()).await;
    let first = sha_of(&stage).await;
    let text = std::fs::read_to_string(stage.router.path("conductor.toml")).unwrap();
    let listing = |hashes: &[&str]| {
        let listed = format!("policy-dir-allow = {hashes:?}\n{text}");
        stage.router.save("conductor.toml", listed.as_bytes()).unwrap();
    };
    listing(&[&first]);
    reload(&stage).await;
    stage
        .router
        .save_policy("mine", &sends_to(1, 2).unwrap())
        .unwrap();
    stage
        .router
        .save_policy("stray", &sends_to(1, 3).unwrap())
        .unwrap();
    let refused = stage
        .shows("the bytes are refused", |mine| mine["problem"].is_string())
        .await;
    stage.all_by("w0").await;
    stage
        .router
        .admin_shows("/admin/policies", "the stray file is refused too", |page| {
            let policies = page["policies"].as_array().into_iter().flatten();
            let mut stray = policies.filter(|policy| policy["name"] == "stray");
            stray.any(|stray| {
                stray["problem"].to_string().contains("policy-dir-allow") && stray["sha256"].is_null()
            })
        })
        .await;

    listing(&[&first, refused_hash(&refused)]);
    stage
        .shows("it is active", |mine| {
            mine["problem"].is_null() && mine["sha256"] != first.as_str()
        })
        .await;
    stage.all_by("w1").await;
}
