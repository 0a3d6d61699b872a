//! End of a replay: completed or given up, and the handling of queued messages.

use std::ops::Deref;
use std::time::Instant;

use kv_events::{SequenceStep, fingerprint};

use super::replay::ReplayGoal;
use super::{ConnectionState, FIRST_RETRY, FeedRecovery, LAST_RETRY, RecoveryAction, RecoveryActions};
use crate::spec::ResetReason;

impl<P: Deref<Target = [u8]>> FeedRecovery<P> {
    /// Handles the end of the latest replay.
    pub(crate) fn replay_ended(&mut self, now: Instant, actions: &mut RecoveryActions<P>) {
        self.reached = true;
        let Some(replay) = self.replay.take() else { return };
        actions.push(RecoveryAction::CancelReplay);
        self.retry_at = None;
        self.retry_delay = FIRST_RETRY;
        self.refused &= replay.goal != ReplayGoal::Rebuild;
        (self.answers, self.unanswered, self.doubtful) = (true, false, false);
        let silent = self
            .idle_probe
            .check_ended(replay.goal == ReplayGoal::Look && replay.progress, now);
        if silent && self.connection == ConnectionState::Up {
            actions.push(RecoveryAction::Resubscribe);
        }
        if !replay.started {
            let known = self.tracker.last().is_some();
            match replay.goal {
                // Nothing to replay: over one connection the publisher is the same.
                ReplayGoal::Look if known => {}
                ReplayGoal::Prove | ReplayGoal::Fill if known => {
                    // The publisher never sent the last known message.
                    self.reset(ResetReason::Restarted, actions);
                    self.newest_live = self.newest_live.filter(|_| !self.waiting.is_empty());
                    return self.request_replay(ReplayGoal::Rebuild, now, actions);
                }
                _ => self.nothing_published(actions),
            }
        }
        let stuck =
            (replay.goal == ReplayGoal::Fill && !replay.progress).then_some(ResetReason::GapNotReplayed);
        self.catch_up(stuck, now, actions);
        if self.rebuild_owed && self.replay.is_none() {
            self.request_in_passing(ReplayGoal::Rebuild, now, actions);
        }
    }

    /// Handles a publisher without history, unless a live message disproves that.
    fn nothing_published(&mut self, actions: &mut RecoveryActions<P>) {
        self.rebuild_owed = false;
        if self.tracker.last().is_some() {
            self.reset(ResetReason::Restarted, actions);
        }
        let first = self.waiting.first().or(self.newest_live);
        self.known_from = first.is_none_or(|sequence| sequence == 0).then_some(0);
    }

    /// Handles expired deadlines.
    pub(crate) fn tick(&mut self, now: Instant, actions: &mut RecoveryActions<P>) {
        if let Some(replay) = &self.replay {
            if now >= replay.deadline {
                self.give_up(now, actions);
            }
        } else if self.retry_at.is_some_and(|at| now >= at) {
            self.retry_at = None;
            if self.doubtful || (self.complete() && self.answers) {
                self.request_in_passing(ReplayGoal::Look, now, actions);
            } else if !self.complete() && !self.refused {
                self.request_in_passing(ReplayGoal::Rebuild, now, actions);
            }
        } else if self.idle_probe.is_due(now) && !self.unanswered {
            self.request_in_passing(ReplayGoal::Look, now, actions);
        }
    }

    /// Gives up the replay: continues with the known state and retries later.
    fn give_up(&mut self, now: Instant, actions: &mut RecoveryActions<P>) {
        let Some(replay) = self.replay.take() else { return };
        actions.push(RecoveryAction::CancelReplay);
        self.refused |= replay.refused;
        if !replay.refused && !self.unanswered {
            self.unanswered = true;
            actions.push(RecoveryAction::ReportUnanswered);
        }
        self.retry_at = Some(now + self.retry_delay);
        self.retry_delay = (self.retry_delay * 2).min(LAST_RETRY);
        self.rebuild_owed |= replay.goal == ReplayGoal::Rebuild && !replay.started;
        self.rebuild_owed &= !self.refused;
        let reason = if replay.refused {
            ResetReason::LimitExceeded
        } else {
            ResetReason::ReplayTimedOut
        };
        let known = self.tracker.last().is_some();
        if replay.goal == ReplayGoal::Prove && !replay.started && known {
            self.reset(reason, actions);
        } else if known {
            self.doubtful |= match replay.goal {
                ReplayGoal::Look => replay.started || !replay.overtaken,
                ReplayGoal::Fill => true,
                ReplayGoal::Prove | ReplayGoal::Rebuild => replay.started,
            };
        }
        self.catch_up(Some(reason), now, actions);
    }

    /// Applies the queued messages. If any are missing, before or among them, resets the state for `stuck`, or
    /// requests them.
    fn catch_up(&mut self, stuck: Option<ResetReason>, now: Instant, actions: &mut RecoveryActions<P>) {
        let mut stuck = stuck;
        while let Some((sequence, payload)) = self.waiting.pop() {
            if self.tracker.last().is_some_and(|last| sequence <= last) {
                // Already replayed. The live numbers would show a restart in between.
                continue;
            }
            match self.tracker.observe(sequence, fingerprint(&payload)) {
                SequenceStep::Gap { .. } => match stuck.take() {
                    Some(reason) => {
                        self.reset(reason, actions);
                        self.accept(sequence, payload, actions);
                    }
                    None => {
                        actions.push(RecoveryAction::CountGap);
                        self.request_replay(ReplayGoal::Fill, now, actions);
                        return self.waiting.put_back(sequence, payload);
                    }
                },
                _ => {
                    self.doubtful = false;
                    actions.push(RecoveryAction::Apply(sequence, payload));
                }
            }
        }
        // Live messages that did not fit into the queue, or were applied before the replay reset them.
        if self.behind_live() {
            match stuck {
                Some(reason) => self.reset(reason, actions),
                None => {
                    actions.push(RecoveryAction::CountGap);
                    self.request_replay(ReplayGoal::Fill, now, actions);
                }
            }
        }
    }

    /// Returns `true` if the state is known but behind the latest live message.
    fn behind_live(&self) -> bool {
        self.tracker
            .last()
            .is_some_and(|last| self.newest_live > Some(last))
    }
}
