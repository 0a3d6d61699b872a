//! Stories of feeds that take over the state of another router.

use super::tests::{Story, payload};
use super::*;
use crate::seed::FeedPosition;

/// Returns the position after a message, known from another one on.
fn position(run: char, sequence: u64, known_from: u64) -> FeedPosition {
    FeedPosition {
        sequence,
        fingerprint: fingerprint(&payload(run, sequence)),
        known_from,
    }
}

/// Returns a feed whose replay began at 7 and ended at 9.
fn late() -> Story {
    let mut story = Story::new(true);
    story.up().replayed('a', 7..=9).end();
    story.actions.clear();
    assert!(!story.recovery.complete() && !story.recovery.is_behind());
    story
}

fn seed(story: &mut Story, seed: &FeedPosition) {
    assert!(story.recovery.needs_seed(seed));
    story.recovery.seed(seed, story.now, &mut story.actions);
}

#[test]
fn a_seed_is_proven_by_its_last_message_and_completes_the_history() {
    let mut story = late();
    seed(&mut story, &position('a', 8, 0));
    story.assert_actions("request 8");
    assert!(story.recovery.is_behind(), "until the proof");
    story.live('a', 10..=10).replayed('a', 8..=9).end();
    story.assert_actions("a9, stop, a10");
    assert!(story.recovery.complete() && !story.recovery.is_behind());
}

#[test]
fn a_seed_ahead_of_the_own_messages_is_proven_as_well() {
    let mut story = late();
    seed(&mut story, &position('a', 11, 3));
    story.live('a', 10..=12).assert_actions("request 11");
    story.replayed('a', 11..=11).end().assert_actions("stop, a12");
    assert_eq!(story.recovery.known_from(), Some(3));
}

#[test]
fn a_seed_that_the_publisher_no_longer_has_is_void() {
    let mut story = late();
    seed(&mut story, &position('a', 5, 0));
    story.replayed('a', 7..=9).end();
    story.assert_actions("request 5, reset gap-not-replayed, a7, a8, a9, stop");
    assert_eq!(story.recovery.known_from(), Some(7));
}

#[test]
fn a_seed_of_another_run_is_void() {
    let mut story = late();
    seed(&mut story, &position('b', 8, 0));
    story
        .replayed('a', 8..=8)
        .assert_actions("request 8, reset restarted, request 0");
    story
        .replayed('a', 7..=9)
        .end()
        .assert_actions("a7, a8, a9, stop");
}

#[test]
fn a_seed_is_wanted_only_if_it_reaches_further_back_and_can_be_proven() {
    let mut story = late();
    assert!(story.recovery.needs_seed(&position('a', 9, 6)));
    assert!(!story.recovery.needs_seed(&position('a', 9, 7)));
    story.down();
    assert!(!story.recovery.needs_seed(&position('a', 9, 0)));
    let mut without = Story::new(false);
    without.up().live('a', 7..=9);
    assert!(!without.recovery.needs_seed(&position('a', 9, 0)));
}

#[test]
fn an_emptied_cache_is_known_from_the_next_message_and_may_be_seeded() {
    let mut story = Story::new(true);
    story.up().end().live('a', 0..=2);
    story.recovery.emptied(2);
    assert_eq!(story.recovery.position(), Some(position('a', 2, 3)));
    story.live('a', 3..=4);
    assert!(!story.recovery.complete());
    assert_eq!(story.recovery.position(), Some(position('a', 4, 3)));
    assert!(story.recovery.needs_seed(&position('a', 4, 0)));
    story.live('b', 0..=0);
    assert!(story.recovery.complete(), "another run begins with empty caches");
}

#[test]
fn a_position_is_given_only_while_nothing_may_be_missing() {
    let mut story = late();
    assert_eq!(story.recovery.position(), Some(position('a', 9, 7)));
    story.live('a', 11..=11);
    assert_eq!(story.recovery.position(), None);
    assert_eq!(Story::fresh().recovery.position(), None, "nothing was received");
}
