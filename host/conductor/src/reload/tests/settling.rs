//! A configuration that is being written is not applied.

use std::time::{Duration, SystemTime};

use super::*;

/// Writes a text. Returns the time of the change.
fn write(story: &Story, text: &str) -> SystemTime {
    let file = story.path("conductor.toml");
    fs::write(&file, text).unwrap();
    fs::metadata(&file).unwrap().modified().unwrap()
}

/// Runs a look without a request, some milliseconds after a change.
async fn look(story: Story, changed: SystemTime, millis: u64) -> (Story, ReloadOutcome, bool) {
    let now = changed + Duration::from_millis(millis);
    let (story, (outcome, seen)) = story.run(move |reloader| reloader.round(Some(now))).await;
    (story, outcome, seen.is_unsettled)
}

/// Returns the first part of a text, which is a valid configuration too.
fn half() -> String {
    let text = before();
    let end = text.find("[[pools.chat.workers]]\nname = \"w1\"").unwrap();
    text[..end].to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_half_written_file_is_not_applied() {
    let story = Story::begin().await;
    let changed = write(&story, &half());
    let (story, outcome, is_unsettled) = look(story, changed, 400).await;
    assert!(matches!(outcome, ReloadOutcome::Unchanged), "{outcome:?}");
    assert!(is_unsettled, "it is read again soon");
    assert_eq!(story.reloader.active.text, before());

    let changed = write(&story, &after());
    let (story, outcome, _) = look(story, changed, 500).await;
    assert!(outcome.has_changes(), "{outcome:?}");
    assert_eq!(story.reloader.active.text, after());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_half_written_file_is_not_refused() {
    let story = Story::begin().await;
    let changed = write(&story, "[server");
    let (story, outcome, _) = look(story, changed, 0).await;
    assert!(matches!(outcome, ReloadOutcome::Unchanged), "{outcome:?}");
    assert!(story.reloader.status.config().problems.is_empty());
    let (_, outcome, _) = look(story, changed, 500).await;
    assert!(matches!(outcome, ReloadOutcome::Refused { .. }), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_requested_reload_waits_for_nothing() {
    let story = Story::begin().await;
    write(&story, &after());
    let (story, outcome) = story.reload(None).await;
    assert!(outcome.has_changes(), "{outcome:?}");
    assert_eq!(story.reloader.active.text, after());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_revoked_key_is_refused_while_the_file_is_written() {
    let story = Story::begin().await;
    let generation = story.reloader.active.generation;
    fs::write(story.path("old.key"), "another").unwrap();
    let changed = write(&story, &half());
    let (story, _, is_unsettled) = look(story, changed, 0).await;
    assert!(is_unsettled);
    assert_eq!(story.reloader.active.text, before());
    assert_ne!(story.reloader.active.generation, generation, "the key is applied");
}
