//! One publisher's history put in order: what to apply, when to ask for a replay, when to give up what is known.
//!
//! Pure: messages and the time come in, [`Action`]s come out; it must not know about sockets or events. What it relies on
//! (vLLM 0.32, SGLang 0.5.23 and their predecessors): numbers count up by one from 0 within one run of the publisher; a replay from
//! `n` brings what the publisher still has from `n` on, in order, then an end. Nothing says that the start had already
//! been dropped, nor that the publisher is another one than before. Therefore a gap is asked for from the last message
//! known: getting that very message back proves that nothing was lost and that the publisher is the same.
//!
//! One restart cannot be seen from here: a publisher that, while nobody listened, started anew and published exactly as
//! many batches as before, so that its next number follows the last one known. Only the connection tells of it.
//!
//! While a replay runs, live messages wait: applied at once, an old replayed store could bring back a block that a
//! newer live removal took away. Only a retry holds nothing up before it brings anything: a publisher that never answers
//! one would otherwise be followed in fits and starts. Its first batch voids what was applied until then, and what it
//! does not bring of that is asked for once more.

use std::collections::VecDeque;
use std::ops::Deref;
use std::time::{Duration, Instant};

use kv_events::{SequenceTracker, Step, fingerprint};

use crate::spec::ResetReason;

/// A replay that brings nothing for so long is given up.
pub(crate) const REPLAY_TIMEOUT: Duration = Duration::from_secs(5);
/// After that the next one is tried in this time, doubled with each failure ...
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// ... up to this.
const LAST_RETRY: Duration = Duration::from_secs(60);
/// Live messages that wait for a replay. Further ones are dropped, to be asked for when the replay has ended.
const MAX_WAITING: usize = 4096;
/// Bytes of them.
const MAX_WAITING_BYTES: usize = 8 << 20;

/// What to do now, in this order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action<P> {
    /// Pass this payload on.
    Apply(P),
    /// Void what was passed on so far.
    Reset(ResetReason),
    /// Ask for a replay from this number, in place of any that is running.
    Ask(u64),
    /// Close the replay that is running.
    StopAsking,
    /// Count messages that were missing.
    CountGap,
    /// Tell that replays bring nothing: once until one brings something.
    TellUnanswered,
}

#[derive(Debug)]
struct Replay {
    goal: Goal,
    /// Asked for again after one that brought nothing.
    retry: bool,
    /// Whether a batch has come.
    started: bool,
    /// Whether a batch was applied.
    progress: bool,
    deadline: Instant,
}

impl Replay {
    /// Whether live messages wait for it.
    fn holds_up(&self) -> bool {
        self.started || !self.retry
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// Everything the publisher still has.
    Rebuild,
    /// What came after the last message known.
    Fill,
}

#[derive(Debug)]
pub(crate) struct Recovery<P> {
    can_replay: bool,
    /// What was applied.
    tracker: SequenceTracker,
    /// The number of the latest live message, applied or not.
    newest_live: Option<u64>,
    replay: Option<Replay>,
    waiting: VecDeque<(u64, P)>,
    waiting_bytes: usize,
    retry_at: Option<Instant>,
    retry_delay: Duration,
    /// Replays bring nothing, and that was told.
    unanswered: bool,
    /// Everything since the publisher's start was applied.
    complete: bool,
    /// Anything was ever received.
    reached: bool,
}

type Actions<P> = Vec<Action<P>>;

impl<P: Deref<Target = [u8]>> Recovery<P> {
    /// Begins by asking for everything, where that is possible.
    pub(crate) fn new(can_replay: bool, now: Instant, actions: &mut Actions<P>) -> Self {
        let mut recovery = Self {
            can_replay,
            tracker: SequenceTracker::default(),
            newest_live: None,
            replay: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            retry_at: None,
            retry_delay: FIRST_RETRY,
            unanswered: false,
            complete: false,
            reached: false,
        };
        if can_replay {
            recovery.ask(Goal::Rebuild, now, actions);
        }
        recovery
    }

    pub(crate) fn last_applied(&self) -> Option<u64> {
        self.tracker.last()
    }

    pub(crate) fn complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn reached(&self) -> bool {
        self.reached
    }

    /// Whether what is known is behind what the publisher has told.
    pub(crate) fn replaying(&self) -> bool {
        self.replay.as_ref().is_some_and(Replay::holds_up)
    }

    /// When [`Recovery::tick`] has something to do, if nothing is received before.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.replay
            .as_ref()
            .map(|replay| replay.deadline)
            .or(self.retry_at)
    }

    /// A message of the live stream.
    pub(crate) fn live(&mut self, sequence: u64, payload: P, now: Instant, actions: &mut Actions<P>) {
        self.reached = true;
        if self.replaying() {
            let went_back = self.newest_live.is_some_and(|newest| sequence <= newest);
            self.newest_live = Some(sequence);
            if went_back {
                self.restart(actions);
                return self.first(sequence, payload, now, actions);
            }
            return self.wait(sequence, payload);
        }
        self.newest_live = Some(sequence);
        if self.tracker.last().is_none() {
            return self.first(sequence, payload, now, actions);
        }
        match self.tracker.observe(sequence, fingerprint(&payload)) {
            Step::InOrder => actions.push(Action::Apply(payload)),
            Step::Duplicate => {}
            Step::Restarted => {
                self.restart(actions);
                self.first(sequence, payload, now, actions);
            }
            Step::Gap { .. } => {
                actions.push(Action::CountGap);
                if self.can_replay {
                    self.ask(Goal::Fill, now, actions);
                    self.wait(sequence, payload);
                } else {
                    self.void(ResetReason::GapWithoutReplay, actions);
                    self.accept(sequence, payload, actions);
                }
            }
        }
    }

    /// A message of the replay asked for last.
    pub(crate) fn replayed(&mut self, sequence: u64, payload: P, now: Instant, actions: &mut Actions<P>) {
        self.reached = true;
        let Some(replay) = &mut self.replay else { return };
        replay.deadline = now + REPLAY_TIMEOUT;
        let (goal, first) = (replay.goal, !replay.started);
        replay.started = true;
        self.unanswered = false;
        let mark = fingerprint(&payload);
        if first && goal == Goal::Rebuild {
            if self.tracker.last().is_some() {
                self.void(ResetReason::Rebuild, actions);
            }
            self.complete = sequence == 0;
        } else if first && self.tracker.last().is_some_and(|last| sequence > last) {
            // The last message known is no longer there: what lies between cannot be known, nor whose this is.
            self.void(ResetReason::GapNotReplayed, actions);
        }
        match self.tracker.observe(sequence, mark) {
            Step::InOrder => {
                self.progressed();
                actions.push(Action::Apply(payload));
            }
            Step::Duplicate => {}
            Step::Restarted => {
                self.restart(actions);
                self.newest_live = None;
                self.ask(Goal::Rebuild, now, actions);
            }
            // Lost on the way: ask for the rest, unless asking does not help.
            Step::Gap { .. } if self.replay.as_ref().is_some_and(|replay| replay.progress) => {
                self.ask(Goal::Fill, now, actions);
            }
            Step::Gap { .. } => {
                self.void(ResetReason::GapNotReplayed, actions);
                self.progressed();
                self.accept(sequence, payload, actions);
            }
        }
    }

    fn progressed(&mut self) {
        if let Some(replay) = &mut self.replay {
            replay.progress = true;
        }
    }

    /// The replay asked for last has brought everything.
    pub(crate) fn replay_ended(&mut self, now: Instant, actions: &mut Actions<P>) {
        self.reached = true;
        let Some(replay) = self.replay.take() else { return };
        actions.push(Action::StopAsking);
        self.retry_at = None;
        self.retry_delay = FIRST_RETRY;
        self.unanswered = false;
        if !replay.started {
            if self.tracker.last().is_some() {
                // Not even the last message known: this publisher never sent it.
                self.void(ResetReason::Restarted, actions);
            }
            // Nothing was published yet, unless a live message tells otherwise.
            let first_live = self.waiting.front().map(|&(sequence, _)| sequence);
            self.complete = first_live
                .or(self.newest_live)
                .is_none_or(|sequence| sequence == 0);
        }
        let stuck = (replay.goal == Goal::Fill && !replay.progress).then_some(ResetReason::GapNotReplayed);
        self.catch_up(stuck, now, actions);
    }

    /// Time has passed; for deadlines.
    pub(crate) fn tick(&mut self, now: Instant, actions: &mut Actions<P>) {
        if self.replay.as_ref().is_some_and(|replay| now >= replay.deadline) {
            self.give_up(now, actions);
        } else if self.replay.is_none() && self.retry_at.is_some_and(|at| now >= at) {
            self.retry_at = None;
            if !self.complete {
                self.ask(Goal::Rebuild, now, actions);
                self.replay.iter_mut().for_each(|replay| replay.retry = true);
            }
        }
    }

    /// No replay: go on with what there is, and try to learn the rest later.
    fn give_up(&mut self, now: Instant, actions: &mut Actions<P>) {
        self.replay = None;
        actions.push(Action::StopAsking);
        if !self.unanswered {
            self.unanswered = true;
            actions.push(Action::TellUnanswered);
        }
        self.retry_at = Some(now + self.retry_delay);
        self.retry_delay = (self.retry_delay * 2).min(LAST_RETRY);
        self.catch_up(Some(ResetReason::ReplayTimedOut), now, actions);
    }

    /// Applies the messages that waited. Where any is missing, before them or after: gives up what is known for `stuck`,
    /// or asks for it.
    fn catch_up(&mut self, stuck: Option<ResetReason>, now: Instant, actions: &mut Actions<P>) {
        let mut stuck = stuck;
        while let Some((sequence, payload)) = self.waiting.pop_front() {
            self.waiting_bytes -= payload.len();
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
                        self.waiting_bytes += payload.len();
                        return self.waiting.push_front((sequence, payload));
                    }
                },
                _ => actions.push(Action::Apply(payload)),
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

    /// A live message while nothing is known.
    fn first(&mut self, sequence: u64, payload: P, now: Instant, actions: &mut Actions<P>) {
        if sequence > 0 && self.can_replay {
            self.wait(sequence, payload);
            return self.ask(Goal::Rebuild, now, actions);
        }
        self.complete = sequence == 0;
        if self.replay.take().is_some() {
            actions.push(Action::StopAsking);
        }
        self.accept(sequence, payload, actions);
    }

    fn accept(&mut self, sequence: u64, payload: P, actions: &mut Actions<P>) {
        self.tracker.accept(sequence, fingerprint(&payload));
        actions.push(Action::Apply(payload));
    }

    fn wait(&mut self, sequence: u64, payload: P) {
        let bytes = self.waiting_bytes.saturating_add(payload.len());
        if self.waiting.len() < MAX_WAITING && bytes <= MAX_WAITING_BYTES {
            self.waiting_bytes = bytes;
            self.waiting.push_back((sequence, payload));
        }
    }

    /// The publisher started anew. What waits is of the run before, or will be replayed.
    fn restart(&mut self, actions: &mut Actions<P>) {
        self.void(ResetReason::Restarted, actions);
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    fn void(&mut self, reason: ResetReason, actions: &mut Actions<P>) {
        self.tracker.forget();
        self.complete = false;
        actions.push(Action::Reset(reason));
    }

    fn ask(&mut self, goal: Goal, now: Instant, actions: &mut Actions<P>) {
        let from = match goal {
            Goal::Rebuild => 0,
            Goal::Fill => self.tracker.last().unwrap_or(0),
        };
        self.retry_at = None;
        self.replay = Some(Replay {
            goal,
            retry: false,
            started: false,
            progress: false,
            deadline: now + REPLAY_TIMEOUT,
        });
        actions.push(Action::Ask(from));
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
