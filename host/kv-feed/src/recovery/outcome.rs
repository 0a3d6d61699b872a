//! What becomes of a replay: it ends, or it is given up; and how what waited for it is taken in.

use std::ops::Deref;
use std::time::Instant;

use kv_events::{Step, fingerprint};

use super::replay::Goal;
use super::{Action, Actions, Connection, FIRST_RETRY, LAST_RETRY, Recovery};
use crate::spec::ResetReason;

impl<P: Deref<Target = [u8]>> Recovery<P> {
    /// The replay asked for last has brought everything.
    pub(crate) fn replay_ended(&mut self, now: Instant, actions: &mut Actions<P>) {
        self.reached = true;
        let Some(replay) = self.replay.take() else { return };
        actions.push(Action::StopAsking);
        self.retry_at = None;
        self.retry_delay = FIRST_RETRY;
        (self.answers, self.unanswered, self.doubtful) = (true, false, false);
        let silent = self
            .vigil
            .looked(replay.goal == Goal::Look && replay.progress, now);
        if silent && self.connection == Connection::Up {
            actions.push(Action::Resubscribe);
        }
        if !replay.started {
            let known = self.tracker.last().is_some();
            match replay.goal {
                // It keeps nothing: over one connection it is the same publisher.
                Goal::Look if known => {}
                Goal::Prove | Goal::Fill if known => {
                    // Not even the last message known: this publisher never sent it.
                    self.void(ResetReason::Restarted, actions);
                    self.newest_live = self.newest_live.filter(|_| !self.waiting.is_empty());
                    return self.ask(Goal::Rebuild, now, actions);
                }
                _ => self.nothing_published(actions),
            }
        }
        let stuck = (replay.goal == Goal::Fill && !replay.progress).then_some(ResetReason::GapNotReplayed);
        self.catch_up(stuck, now, actions);
        if self.rebuild_owed && self.replay.is_none() {
            self.ask_in_passing(Goal::Rebuild, now, actions);
        }
    }

    /// The publisher has nothing from its start on, unless a live message tells otherwise.
    fn nothing_published(&mut self, actions: &mut Actions<P>) {
        self.rebuild_owed = false;
        if self.tracker.last().is_some() {
            self.void(ResetReason::Restarted, actions);
        }
        self.complete = self
            .waiting
            .first()
            .or(self.newest_live)
            .is_none_or(|sequence| sequence == 0);
    }

    /// Time has passed; for deadlines.
    pub(crate) fn tick(&mut self, now: Instant, actions: &mut Actions<P>) {
        if let Some(replay) = &self.replay {
            if now >= replay.deadline {
                self.give_up(now, actions);
            }
        } else if self.retry_at.is_some_and(|at| now >= at) {
            self.retry_at = None;
            if self.doubtful || (self.complete && self.answers) {
                self.ask_in_passing(Goal::Look, now, actions);
            } else if !self.complete {
                self.ask_in_passing(Goal::Rebuild, now, actions);
            }
        } else if self.vigil.is_due(now) && !self.unanswered {
            self.ask_in_passing(Goal::Look, now, actions);
        }
    }

    /// No replay: go on with what there is, and try to learn the rest later.
    fn give_up(&mut self, now: Instant, actions: &mut Actions<P>) {
        let Some(replay) = self.replay.take() else { return };
        actions.push(Action::StopAsking);
        if !self.unanswered {
            self.unanswered = true;
            actions.push(Action::TellUnanswered);
        }
        self.retry_at = Some(now + self.retry_delay);
        self.retry_delay = (self.retry_delay * 2).min(LAST_RETRY);
        self.rebuild_owed |= replay.goal == Goal::Rebuild && !replay.started;
        let known = self.tracker.last().is_some();
        if replay.goal == Goal::Prove && !replay.started && known {
            self.void(ResetReason::ReplayTimedOut, actions);
        } else if known {
            self.doubtful |= match replay.goal {
                Goal::Look => replay.started || !replay.overtaken,
                Goal::Fill => true,
                Goal::Prove | Goal::Rebuild => replay.started,
            };
        }
        self.catch_up(Some(ResetReason::ReplayTimedOut), now, actions);
    }

    /// Applies the messages that waited. Where any is missing, before them or after: gives up what is known for `stuck`,
    /// or asks for it.
    fn catch_up(&mut self, stuck: Option<ResetReason>, now: Instant, actions: &mut Actions<P>) {
        let mut stuck = stuck;
        while let Some((sequence, payload)) = self.waiting.pop() {
            if self.tracker.last().is_some_and(|last| sequence <= last) {
                // Replayed already. A restart in between would have shown in the live numbers.
                continue;
            }
            match self.tracker.observe(sequence, fingerprint(&payload)) {
                Step::Gap { .. } => match stuck.take() {
                    Some(reason) => {
                        self.void(reason, actions);
                        self.accept(sequence, payload, actions);
                    }
                    None => {
                        actions.push(Action::CountGap);
                        self.ask(Goal::Fill, now, actions);
                        return self.waiting.put_back(sequence, payload);
                    }
                },
                _ => {
                    self.doubtful = false;
                    actions.push(Action::Apply(payload));
                }
            }
        }
        // Live messages that did not fit the queue, or were applied before the replay voided them.
        if self.behind_live() {
            match stuck {
                Some(reason) => self.void(reason, actions),
                None => {
                    actions.push(Action::CountGap);
                    self.ask(Goal::Fill, now, actions);
                }
            }
        }
    }

    /// Whether something is known, but not the latest live message.
    fn behind_live(&self) -> bool {
        self.tracker
            .last()
            .is_some_and(|last| self.newest_live > Some(last))
    }
}
