//! Tests of limits and faults, as stories of letters (see `tests`).

use super::tests::Story;
use super::*;

/// Returns a connected feed that has received `a0` to `a2`.
fn caught_up(can_replay: bool) -> Story {
    let mut story = Story::new(can_replay);
    story.up();
    if can_replay {
        story.end();
    }
    story.live('a', 0..=2);
    let replay_link = if can_replay { "request 0, stop, " } else { "" };
    story.assert_actions(&format!("{replay_link}a0, a1, a2"));
    story
}

#[test]
fn a_message_that_was_not_taken_voids_what_is_known_and_everything_is_requested_again() {
    let mut story = caught_up(true);
    story.recovery.message_lost(&mut story.actions);
    story.down().assert_actions("reset limit-exceeded");
    story.up().assert_actions("request 0");
    story
        .replayed('a', 0..=3)
        .end()
        .assert_actions("a0, a1, a2, a3, stop");
    assert!(story.recovery.complete());
}

#[test]
fn without_replay_a_message_that_was_not_taken_voids_what_is_known_once() {
    let mut story = caught_up(false);
    story.recovery.message_lost(&mut story.actions);
    story.down().up().assert_actions("reset limit-exceeded");
    story.live('a', [4]).assert_actions("a4");
}

#[test]
fn a_replay_that_was_refused_is_given_up_at_once() {
    let mut story = Story::new(true);
    story.up().live('a', [5]).assert_actions("request 0");
    story.recovery.replay_failed(story.now);
    story.later(Duration::ZERO).assert_actions("stop, unanswered, a5");
    assert!(!story.recovery.is_behind());
}

#[test]
fn messages_that_made_room_are_requested_when_the_replay_has_ended() {
    let mut story = Story::new(true);
    story.up().live('a', 2..=3).assert_actions("request 0");
    story.recovery.make_room();
    story
        .replayed('a', 0..=1)
        .end()
        .assert_actions("a0, a1, stop, gap, request 1");
    story.replayed('a', 1..=3).end().assert_actions("a2, a3, stop");
}
