//! Tests of broken connections and silence, as stories of letters (see `tests`).

use super::idle_probe::{FIRST_CHECK, LAST_CHECK};
use super::tests::Story;
use super::*;

use ResetReason::{ConnectionLost, GapNotReplayed, ReplayTimedOut, Restarted};

/// Returns a connected feed that has received everything its publisher sent, `a0` to `a2`.
fn caught_up() -> Story {
    let mut story = Story::new(true);
    story
        .up()
        .end()
        .live('a', 0..=2)
        .assert_actions("request 0, stop, a0, a1, a2");
    story
}

#[test]
fn a_connection_that_comes_back_proves_that_nothing_was_missed() {
    let mut story = caught_up();
    story.down();
    assert!(!story.recovery.reached());
    story.up().assert_actions("request 2");
    assert!(story.recovery.reached() && story.recovery.is_behind());
    story.replayed('a', 2..=2).end().assert_actions("stop");
    assert!(!story.recovery.is_behind() && story.recovery.complete());
}

#[test]
fn messages_missed_while_disconnected_are_fetched_on_reconnect() {
    let mut story = caught_up();
    story
        .down()
        .up()
        .replayed('a', 2..=4)
        .end()
        .assert_actions("request 2, a3, a4, stop");
    assert!(story.recovery.complete());
}

#[test]
fn a_publisher_that_restarted_meanwhile_is_known_whatever_number_it_has_reached() {
    let check = |reached: u64, proof: &str| {
        let mut story = caught_up();
        let replayed: Vec<u64> = (2..reached).collect();
        story.down().up().replayed('b', replayed.iter().copied());
        if replayed.is_empty() {
            story.end();
        }
        story.assert_actions(&format!("request 2, {proof}reset {Restarted}, request 0"));
        story.replayed('b', 0..reached).end();
        let all: String = (0..reached).map(|number| format!("b{number}, ")).collect();
        story.assert_actions(&format!("{all}stop"));
        assert!(story.recovery.complete() && !story.recovery.is_behind());
    };
    check(0, "stop, ");
    check(1, "stop, ");
    // The next live message would be `b3`, the number after `a2`.
    check(3, "");
}

#[test]
fn a_connection_that_comes_back_without_replay_voids_what_is_known() {
    let mut story = Story::new(false);
    story.up().live('a', 0..=2).assert_actions("a0, a1, a2");
    story
        .down()
        .up()
        .assert_actions(&format!("reset {ConnectionLost}"));
    story.live('b', 3..=3).assert_actions("b3");
    assert!(!story.recovery.complete());
}

#[test]
fn a_publisher_that_proves_nothing_in_time_is_followed_from_where_it_is() {
    let mut story = caught_up();
    story.down().up().live('a', 3..=3).assert_actions("request 2");
    story
        .later(REPLAY_TIMEOUT)
        .assert_actions(&format!("stop, unanswered, reset {ReplayTimedOut}, a3"));
}

#[test]
fn a_replay_that_was_running_when_the_connection_broke_is_requested_again() {
    let mut story = Story::new(true);
    story
        .up()
        .replayed('a', 0..=1)
        .assert_actions("request 0, a0, a1");
    story.down().up().assert_actions("stop, request 1");
    story.replayed('a', 1..=2).end().assert_actions("a2, stop");
    assert!(story.recovery.complete());
}

#[test]
fn a_first_connection_that_comes_late_requests_everything() {
    let mut story = Story::new(true);
    story
        .later(REPLAY_TIMEOUT)
        .assert_actions("request 0, stop, unanswered");
    story.up().assert_actions("request 0");
}

#[test]
fn a_replay_that_breaks_off_leaves_doubt_until_it_is_finished() {
    let mut story = Story::new(true);
    story.up().replayed('a', 0..=1).later(REPLAY_TIMEOUT);
    story.assert_actions("request 0, a0, a1, stop, unanswered");
    assert!(story.recovery.is_behind());
    story.later(FIRST_RETRY).assert_actions("request 1");
    assert!(story.recovery.is_behind());
    story.replayed('a', 1..=3).end().assert_actions("a2, a3, stop");
    assert!(!story.recovery.is_behind() && story.recovery.complete());
}

#[test]
fn a_live_message_in_order_ends_the_doubt_of_a_broken_replay() {
    let mut story = Story::new(true);
    story
        .up()
        .replayed('a', 0..=1)
        .later(REPLAY_TIMEOUT)
        .live('a', 2..=2);
    story.assert_actions("request 0, a0, a1, stop, unanswered, a2");
    assert!(!story.recovery.is_behind() && story.recovery.complete());
}

#[test]
fn a_lost_last_message_is_found_by_looking() {
    let mut story = caught_up();
    story.later(FIRST_CHECK).assert_actions("request 2");
    assert!(!story.recovery.is_behind());
    story.replayed('a', 2..=3).end().assert_actions("a3, stop");
    story.live('a', 3..=4).assert_actions("a4");
}

#[test]
fn an_idle_publisher_is_looked_at_ever_more_rarely() {
    let mut story = caught_up();
    let mut pause = FIRST_CHECK;
    while pause < LAST_CHECK {
        story
            .later(pause.checked_sub(Duration::from_millis(1)).unwrap())
            .assert_actions("");
        story.later(Duration::from_millis(1)).replayed('a', 2..=2).end();
        story.assert_actions("request 2, stop");
        pause = (pause * 2).min(LAST_CHECK);
    }
    story
        .live('a', 3..=3)
        .later(FIRST_CHECK)
        .assert_actions("a3, request 3");
}

#[test]
fn a_subscription_that_brings_nothing_of_what_is_published_is_made_again() {
    let mut story = caught_up();
    story
        .later(FIRST_CHECK)
        .replayed('a', 2..=3)
        .end()
        .assert_actions("request 2, a3, stop");
    story
        .later(FIRST_CHECK)
        .replayed('a', 3..=4)
        .end()
        .assert_actions("request 3, a4, stop, resubscribe");
    let mut received = caught_up();
    received
        .later(FIRST_CHECK)
        .replayed('a', 2..=3)
        .end()
        .live('a', 3..=3);
    received.later(FIRST_CHECK).replayed('a', 3..=4).end();
    received.assert_actions("request 2, a3, stop, request 3, a4, stop");
}

#[test]
fn a_publisher_that_stops_answering_is_not_trusted_until_it_does_or_is_heard() {
    let mut story = caught_up();
    story
        .later(FIRST_CHECK)
        .assert_actions("request 2")
        .later(REPLAY_TIMEOUT)
        .assert_actions("stop, unanswered");
    assert!(story.recovery.is_behind());
    story
        .later(FIRST_RETRY)
        .replayed('a', 2..=2)
        .end()
        .assert_actions("request 2, stop");
    assert!(!story.recovery.is_behind());
    story
        .later(LAST_CHECK)
        .later(REPLAY_TIMEOUT)
        .assert_actions("request 2, stop, unanswered");
    assert!(story.recovery.is_behind());
    story.live('a', 3..=3).assert_actions("a3");
    assert!(!story.recovery.is_behind());
}

#[test]
fn a_publisher_that_keeps_nothing_is_believed() {
    let mut story = caught_up();
    story.later(FIRST_CHECK).end().assert_actions("request 2, stop");
    assert!(!story.recovery.is_behind());
    story.live('a', 3..=3).assert_actions("a3");
}

#[test]
fn a_gap_while_looking_is_requested() {
    let mut story = caught_up();
    story
        .later(FIRST_CHECK)
        .replayed('a', 2..=2)
        .live('a', 4..=4)
        .end();
    story.assert_actions("request 2, stop, gap, request 2");
    story.replayed('a', 2..=4).end().assert_actions("a3, a4, stop");
    let mut forgotten = caught_up();
    forgotten.later(FIRST_CHECK).replayed('a', 4..=5).end();
    forgotten.assert_actions(&format!("request 2, reset {GapNotReplayed}, a4, a5, stop"));
}
