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
    story.recovery.replay_failed(true, story.now);
    story.later(Duration::ZERO).assert_actions("stop, a5");
    assert!(!story.recovery.is_behind() && !story.recovery.is_unanswered());
}

#[test]
fn a_replay_that_fails_for_another_reason_is_requested_again() {
    let mut story = Story::new(true);
    story.up().replayed('a', [0]).assert_actions("request 0, a0");
    story.recovery.replay_failed(false, story.now);
    story.later(Duration::ZERO);
    assert!(!story.recovery.is_refused() && story.recovery.is_unanswered());
    story.actions.clear();
    story.later(FIRST_RETRY).assert_actions("request 0");
}

#[test]
fn a_replay_that_is_refused_is_not_requested_again_and_what_is_known_stays() {
    let mut story = Story::new(true);
    story.up().replayed('a', [0]).assert_actions("request 0, a0");
    story.recovery.replay_failed(true, story.now);
    story.later(Duration::ZERO).assert_actions("stop");
    assert!(story.recovery.is_doubtful() && story.recovery.is_refused());
    story.live('a', [2]).assert_actions("gap, request 0");
    story.replayed('a', [0]).assert_actions("");
    story.recovery.replay_failed(true, story.now);
    story
        .later(Duration::ZERO)
        .assert_actions("stop, reset limit-exceeded, a2");
    story
        .live('a', [3])
        .later(FIRST_RETRY)
        .live('a', [4])
        .assert_actions("a3, request 3, a4");
    story.later(LAST_RETRY).replayed('a', [4]).end();
    story.later(LAST_RETRY).replayed('a', [4]).end();
    assert!(!story.actions.iter().any(|action| matches!(
        action,
        RecoveryAction::RequestReplay(0) | RecoveryAction::Reset(_)
    )));
}

#[test]
fn everything_is_requested_of_a_publisher_that_restarts_after_a_refused_replay() {
    let mut story = Story::new(true);
    story.up().live('a', [5]).assert_actions("request 0");
    story.recovery.replay_failed(true, story.now);
    story
        .later(Duration::ZERO)
        .live('b', [3])
        .assert_actions("stop, a5, reset restarted, request 0");
    story
        .replayed('b', 0..=2)
        .end()
        .assert_actions("b0, b1, b2, stop, b3");
    assert!(story.recovery.complete() && !story.recovery.is_refused());
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
