//! Stories of letters: a payload is its number and the name of its run, so two runs of a publisher differ.

use super::waiting::MAX_WAITING;
use super::*;

use ResetReason::{GapNotReplayed, GapWithoutReplay, Rebuild, ReplayTimedOut, Restarted};

pub(super) struct Story {
    pub(super) recovery: FeedRecovery<Vec<u8>>,
    pub(super) now: Instant,
    pub(super) actions: Vec<RecoveryAction<Vec<u8>>>,
}

pub(super) fn payload(run: char, sequence: u64) -> Vec<u8> {
    format!("{run}{sequence}").into_bytes()
}

impl Story {
    pub(super) fn new(can_replay: bool) -> Self {
        let (now, mut actions) = (Instant::now(), Vec::new());
        let recovery = FeedRecovery::new(can_replay, FIRST_CHECK, now, &mut actions);
        Self {
            recovery,
            now,
            actions,
        }
    }

    /// Returns the state after a replay without messages.
    pub(super) fn fresh() -> Self {
        let mut story = Self::new(true);
        story.end().assert_actions("request 0, stop");
        story
    }

    pub(super) fn live(&mut self, run: char, sequences: impl IntoIterator<Item = u64>) -> &mut Self {
        for sequence in sequences {
            self.recovery
                .live(sequence, payload(run, sequence), self.now, &mut self.actions);
        }
        self
    }

    pub(super) fn replayed(&mut self, run: char, sequences: impl IntoIterator<Item = u64>) -> &mut Self {
        for sequence in sequences {
            self.recovery
                .replayed(sequence, payload(run, sequence), self.now, &mut self.actions);
        }
        self
    }

    pub(super) fn end(&mut self) -> &mut Self {
        self.recovery.replay_ended(self.now, &mut self.actions);
        self
    }

    /// Connects, possibly again.
    pub(super) fn up(&mut self) -> &mut Self {
        self.recovery.connected(self.now, &mut self.actions);
        self
    }

    /// Loses the connection.
    pub(super) fn down(&mut self) -> &mut Self {
        self.recovery.disconnected(&mut self.actions);
        self
    }

    pub(super) fn later(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self.recovery.tick(self.now, &mut self.actions);
        self
    }

    /// Returns the actions since the last call, as text.
    #[track_caller]
    pub(super) fn assert_actions(&mut self, expected: &str) -> &mut Self {
        let spell = |action: RecoveryAction<Vec<u8>>| match action {
            RecoveryAction::Apply(_, payload) => String::from_utf8(payload).unwrap(),
            RecoveryAction::Reset(reason) => format!("reset {reason}"),
            RecoveryAction::RequestReplay(from) => format!("request {from}"),
            RecoveryAction::CancelReplay => "stop".to_owned(),
            RecoveryAction::CountGap => "gap".to_owned(),
            RecoveryAction::ReportUnanswered => "unanswered".to_owned(),
            RecoveryAction::Resubscribe => "resubscribe".to_owned(),
        };
        let assert_actions: Vec<String> = self.actions.drain(..).map(spell).collect();
        assert_eq!(assert_actions.join(", "), expected);
        self
    }
}

#[test]
fn live_messages_wait_for_the_first_replay_and_follow_it() {
    let mut story = Story::new(true);
    story.live('a', 2..=3).assert_actions("request 0");
    story
        .replayed('a', 0..=2)
        .assert_actions("a0, a1, a2")
        .end()
        .assert_actions("stop, a3");
    assert!(story.recovery.complete() && !story.recovery.is_behind());
    story.live('a', 4..=4).assert_actions("a4");
}

#[test]
fn a_live_message_that_a_replay_already_brought_is_a_repetition() {
    let mut story = Story::new(true);
    story
        .replayed('a', 0..=5)
        .end()
        .assert_actions("request 0, a0, a1, a2, a3, a4, a5, stop");
    story.live('a', 4..=6).assert_actions("a6");
}

#[test]
fn a_history_that_starts_late_is_taken_but_known_to_be_incomplete() {
    let mut story = Story::new(true);
    story
        .replayed('a', 7..=8)
        .end()
        .assert_actions("request 0, a7, a8, stop");
    assert!(!story.recovery.complete());
}

#[test]
fn a_gap_is_filled_from_the_last_message_known() {
    let mut story = Story::fresh();
    story
        .live('a', 0..=2)
        .assert_actions("a0, a1, a2")
        .live('a', 5..=6)
        .assert_actions("gap, request 2");
    story
        .replayed('a', 2..=5)
        .assert_actions("a3, a4, a5")
        .end()
        .assert_actions("stop, a6");
    assert!(story.recovery.complete());
}

#[test]
fn a_gap_without_replay_voids_what_is_known() {
    let mut story = Story::new(false);
    story
        .live('a', 3..=4)
        .assert_actions("a3, a4")
        .live('a', 6..=6)
        .assert_actions(&format!("gap, reset {GapWithoutReplay}, a6"));
    assert!(!story.recovery.complete());
}

#[test]
fn a_gap_that_the_publisher_no_longer_holds_voids_what_is_known() {
    let mut story = Story::fresh();
    story
        .live('a', 0..=1)
        .live('a', 9..=9)
        .assert_actions("a0, a1, gap, request 1");
    story
        .replayed('a', 5..=9)
        .end()
        .assert_actions(&format!("reset {GapNotReplayed}, a5, a6, a7, a8, a9, stop"));
    assert!(!story.recovery.complete());
}

#[test]
fn a_gap_that_a_replay_leaves_open_voids_what_is_known() {
    let mut story = Story::fresh();
    story
        .live('a', 0..=1)
        .live('a', 9..=9)
        .assert_actions("a0, a1, gap, request 1");
    story
        .replayed('a', 1..=1)
        .end()
        .assert_actions(&format!("stop, reset {GapNotReplayed}, a9"));
}

#[test]
fn messages_lost_within_a_replay_are_requested_again() {
    let mut story = Story::new(true);
    story
        .replayed('a', [0, 1, 4])
        .assert_actions("request 0, a0, a1, request 1");
    story
        .replayed('a', 1..=4)
        .end()
        .assert_actions("a2, a3, a4, stop");
    assert!(story.recovery.complete());
}

#[test]
fn a_silent_publisher_costs_what_is_known_and_is_queried_again_later() {
    let mut story = Story::fresh();
    story
        .live('a', 0..=0)
        .live('a', 2..=3)
        .assert_actions("a0, gap, request 0");
    story
        .later(REPLAY_TIMEOUT)
        .assert_actions(&format!("stop, unanswered, reset {ReplayTimedOut}, a2, a3"));
    story
        .live('a', 4..=4)
        .assert_actions("a4")
        .later(FIRST_RETRY)
        .assert_actions("request 0");
    story
        .replayed('a', 0..=1)
        .assert_actions(&format!("reset {Rebuild}, a0, a1"))
        .live('a', 5..=5)
        .assert_actions("");
    story
        .replayed('a', 2..=4)
        .end()
        .assert_actions("a2, a3, a4, stop, a5");
    assert!(story.recovery.complete());
}

/// Returns a feed that has received only `a3`, and requests a replay again after the first one failed.
fn retrying() -> Story {
    let mut story = Story::new(true);
    story
        .live('a', 3..=3)
        .later(REPLAY_TIMEOUT)
        .assert_actions("request 0, stop, unanswered, a3")
        .later(FIRST_RETRY)
        .assert_actions("request 0");
    story
}

#[test]
fn a_retry_that_brings_nothing_holds_nothing_up_and_is_not_reported_again() {
    let mut story = retrying();
    story.live('a', 4..=4).assert_actions("a4");
    assert!(!story.recovery.is_behind());
    story
        .later(REPLAY_TIMEOUT)
        .assert_actions("stop")
        .live('a', 5..=5)
        .assert_actions("a5");
    story
        .later(FIRST_RETRY * 2)
        .assert_actions("request 0")
        .live('a', 6..=6)
        .assert_actions("a6");
}

#[test]
fn a_retry_that_is_answered_replaces_what_is_known() {
    let mut story = retrying();
    story
        .live('a', 4..=4)
        .assert_actions("a4")
        .replayed('a', 0..=1)
        .assert_actions(&format!("reset {Rebuild}, a0, a1"));
    assert!(story.recovery.is_behind());
    story.live('a', 5..=5).assert_actions("");
    story
        .replayed('a', 2..=4)
        .end()
        .assert_actions("a2, a3, a4, stop, a5");
    assert!(story.recovery.complete() && !story.recovery.is_behind());
}

#[test]
fn voided_messages_missing_from_a_retry_are_requested_at_once() {
    let mut story = retrying();
    story
        .live('a', 4..=5)
        .assert_actions("a4, a5")
        .replayed('a', 0..=3)
        .end()
        .assert_actions(&format!("reset {Rebuild}, a0, a1, a2, a3, stop, gap, request 3"));
    assert!(story.recovery.is_behind());
    story.replayed('a', 3..=5).end().assert_actions("a4, a5, stop");
    assert!(story.recovery.complete() && !story.recovery.is_behind());
}

#[test]
fn voided_messages_missing_from_every_replay_void_the_rest() {
    let mut story = retrying();
    story
        .live('a', 4..=5)
        .replayed('a', 0..=3)
        .end()
        .assert_actions(&format!(
            "a4, a5, reset {Rebuild}, a0, a1, a2, a3, stop, gap, request 3"
        ));
    story
        .replayed('a', 3..=3)
        .end()
        .assert_actions(&format!("stop, reset {GapNotReplayed}"));
    let mut story = retrying();
    story
        .live('a', 4..=5)
        .replayed('a', 0..=3)
        .assert_actions(&format!("a4, a5, reset {Rebuild}, a0, a1, a2, a3"));
    story
        .later(REPLAY_TIMEOUT)
        .assert_actions(&format!("stop, unanswered, reset {ReplayTimedOut}"));
}

#[test]
fn a_retry_of_a_publisher_that_has_nothing_voids_what_is_known() {
    let mut story = retrying();
    story
        .live('a', 4..=4)
        .end()
        .assert_actions(&format!("a4, stop, reset {Restarted}"));
    assert!(!story.recovery.complete());
}

#[test]
fn a_restart_during_a_retry_requests_everything_again() {
    let mut story = retrying();
    story
        .live('b', 2..=2)
        .assert_actions(&format!("reset {Restarted}, request 0"))
        .live('b', 3..=3)
        .assert_actions("");
    story
        .replayed('b', 0..=2)
        .end()
        .assert_actions("b0, b1, b2, stop, b3");
    let mut story = retrying();
    story
        .live('b', 0..=1)
        .assert_actions(&format!("reset {Restarted}, stop, b0, b1"));
    assert!(story.recovery.complete());
}

#[test]
fn a_gap_during_a_retry_holds_up_until_it_is_filled() {
    let mut story = retrying();
    story.live('a', 6..=6).assert_actions("gap, request 3");
    assert!(story.recovery.is_behind());
    story
        .replayed('a', 3..=5)
        .end()
        .assert_actions("a4, a5, stop, a6, request 0");
}

#[test]
fn an_answered_replay_ends_the_outage() {
    let mut story = retrying();
    story
        .replayed('a', 0..=3)
        .end()
        .assert_actions(&format!("reset {Rebuild}, a0, a1, a2, a3, stop"));
    story
        .live('a', 5..=5)
        .later(REPLAY_TIMEOUT)
        .assert_actions(&format!(
            "gap, request 3, stop, unanswered, reset {ReplayTimedOut}, a5"
        ));
}

#[test]
fn a_failed_retry_leaves_what_is_known_and_waits_longer() {
    let mut story = Story::new(true);
    story
        .later(REPLAY_TIMEOUT)
        .assert_actions("request 0, stop, unanswered")
        .later(FIRST_RETRY)
        .assert_actions("request 0");
    story
        .later(REPLAY_TIMEOUT)
        .assert_actions("stop")
        .later(FIRST_RETRY)
        .assert_actions("")
        .later(FIRST_RETRY)
        .assert_actions("request 0");
}

#[test]
fn a_publisher_that_comes_up_late_needs_no_replay() {
    let mut story = Story::new(true);
    story
        .later(REPLAY_TIMEOUT)
        .assert_actions("request 0, stop, unanswered")
        .live('a', 0..=1)
        .assert_actions("a0, a1");
    assert!(story.recovery.complete());
    story.later(LAST_RETRY).assert_actions("");
}

#[test]
fn a_restart_voids_what_is_known() {
    let mut story = Story::fresh();
    story
        .live('a', 0..=3)
        .assert_actions("a0, a1, a2, a3")
        .live('b', 0..=1)
        .assert_actions(&format!("reset {Restarted}, b0, b1"));
    assert!(story.recovery.complete());
    let mut story = Story::new(false);
    story
        .live('a', 0..=3)
        .assert_actions("a0, a1, a2, a3")
        .live('b', 2..=2)
        .assert_actions(&format!("reset {Restarted}, b2"));
}

#[test]
fn a_restart_whose_beginning_was_missed_is_replayed() {
    let mut story = Story::fresh();
    story
        .live('a', 0..=3)
        .assert_actions("a0, a1, a2, a3")
        .live('b', 2..=2)
        .assert_actions(&format!("reset {Restarted}, request 0"));
    story
        .replayed('b', 0..=2)
        .end()
        .assert_actions("b0, b1, b2, stop");
}

#[test]
fn a_restart_hidden_behind_higher_numbers_is_seen_by_the_replay() {
    let mut story = Story::fresh();
    story
        .live('a', 0..=3)
        .live('b', 6..=6)
        .assert_actions("a0, a1, a2, a3, gap, request 3");
    story
        .replayed('b', 3..=3)
        .assert_actions(&format!("reset {Restarted}, request 0"));
    story
        .replayed('b', 0..=6)
        .end()
        .assert_actions("b0, b1, b2, b3, b4, b5, b6, stop");
}

#[test]
fn a_restart_during_a_replay_discards_what_waited() {
    let mut story = Story::new(true);
    story
        .live('a', 5..=6)
        .live('b', 0..=0)
        .assert_actions(&format!("request 0, reset {Restarted}, stop, b0"));
    story.live('b', 1..=1).assert_actions("b1");
}

#[test]
fn messages_beyond_the_queue_are_requested_after_the_replay() {
    let mut story = Story::new(true);
    story.assert_actions("request 0");
    let waiting = MAX_WAITING as u64;
    story.live('a', 0..waiting + 10).end();
    let replay_link = story.actions.split_off(1 + MAX_WAITING);
    assert_eq!(
        replay_link,
        [
            RecoveryAction::CountGap,
            RecoveryAction::RequestReplay(waiting - 1)
        ]
    );
    story.actions.clear();
    story.live('a', [waiting + 10]).assert_actions("");
}
