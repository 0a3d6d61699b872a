//! A configuration that is being written is not applied.

use std::time::{Duration, SystemTime};

use super::*;

/// Writes a text. Returns the time of the change.
fn write(scenario: &Scenario, text: &str) -> SystemTime {
    let file = scenario.path("conductor.toml");
    fs::write(&file, text).unwrap();
    fs::metadata(&file).unwrap().modified().unwrap()
}

/// Runs a look without a request, some milliseconds after a change.
async fn look(scenario: Scenario, changed: SystemTime, millis: u64) -> (Scenario, ReloadOutcome, bool) {
    let now = changed + Duration::from_millis(millis);
    let (scenario, (outcome, seen)) = scenario.run(move |reloader| reloader.round(Some(now))).await;
    (scenario, outcome, seen.is_unsettled)
}

/// Returns the first part of a text, which is a valid configuration too.
fn half() -> String {
    let text = before();
    let end = text.find("[[pools.chat.workers]]\nname = \"w1\"").unwrap();
    text[..end].to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_half_written_file_is_not_applied() {
    let scenario = Scenario::begin().await;
    let changed = write(&scenario, &half());
    let (scenario, outcome, is_unsettled) = look(scenario, changed, 400).await;
    assert!(matches!(outcome, ReloadOutcome::Unchanged), "{outcome:?}");
    assert!(is_unsettled, "it is read again soon");
    assert_eq!(scenario.reloader.active.text, before());

    let changed = write(&scenario, &after());
    let (scenario, outcome, _) = look(scenario, changed, 500).await;
    assert!(outcome.has_changes(), "{outcome:?}");
    assert_eq!(scenario.reloader.active.text, after());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_half_written_file_is_not_refused() {
    let scenario = Scenario::begin().await;
    let changed = write(&scenario, "[server");
    let (scenario, outcome, _) = look(scenario, changed, 0).await;
    assert!(matches!(outcome, ReloadOutcome::Unchanged), "{outcome:?}");
    assert!(scenario.reloader.status.config().problems.is_empty());
    let (_, outcome, _) = look(scenario, changed, 500).await;
    assert!(matches!(outcome, ReloadOutcome::Refused { .. }), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_requested_reload_waits_for_nothing() {
    let scenario = Scenario::begin().await;
    write(&scenario, &after());
    let (scenario, outcome) = scenario.reload(None).await;
    assert!(outcome.has_changes(), "{outcome:?}");
    assert_eq!(scenario.reloader.active.text, after());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_revoked_key_is_refused_while_the_file_is_written() {
    let scenario = Scenario::begin().await;
    let generation = scenario.reloader.active.generation;
    fs::write(scenario.path("old.key"), "another").unwrap();
    let changed = write(&scenario, &half());
    let (scenario, _, is_unsettled) = look(scenario, changed, 0).await;
    assert!(is_unsettled);
    assert_eq!(scenario.reloader.active.text, before());
    assert_ne!(
        scenario.reloader.active.generation, generation,
        "the key is applied"
    );
}
