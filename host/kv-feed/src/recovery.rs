//! One publisher's history put in order: what to apply, when to ask for a replay, when to give up what is known.
//!
//! Pure: messages, connections and the time come in, [`Action`]s come out; it must not know about sockets or events. What
//! it relies on (vLLM 0.32, SGLang 0.5.23 and their predecessors): numbers count up by one from 0 within one run of the
//! publisher; a replay from `n` brings what the publisher still has from `n` on, in order, then an end. Nothing says that
//! the start had already been dropped, nor that the publisher is another one than before. Therefore whatever is missing is
//! asked for from the last message known: getting that very message back proves that nothing was lost and that the
//! publisher is the same.
//!
//! A connection that comes back asks for that proof too: whatever was published meanwhile went nowhere, and a publisher
//! that started anew may by chance go on with the very next number. Where there is no replay nothing can prove it, and
//! what is known goes.
//!
//! While a replay runs, live messages wait: applied at once, an old replayed store could bring back a block that a
//! newer live removal took away. Only one in passing holds nothing up before it brings anything: a publisher that never
//! answers would otherwise be followed in fits and starts. The first batch of a rebuild voids what was applied until then,
//! and what it does not bring of that is asked for once more.

use std::ops::Deref;
use std::time::{Duration, Instant};

use kv_events::{SequenceTracker, Step, fingerprint};

use self::replay::{Goal, Replay};
use self::vigil::Vigil;
use self::waiting::Waiting;
use crate::spec::ResetReason;

mod outcome;
mod replay;
mod vigil;
mod waiting;

/// A replay that brings nothing for so long is given up.
pub(crate) const REPLAY_TIMEOUT: Duration = Duration::from_secs(5);
/// After that the next one is tried in this time, doubled with each failure ...
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// ... up to this.
const LAST_RETRY: Duration = Duration::from_secs(60);

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
    /// Subscribe anew: the publisher publishes, and the subscription brings nothing of it.
    Resubscribe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connection {
    NotYet,
    Up,
    Down,
}

#[derive(Debug)]
pub(crate) struct Recovery<P> {
    can_replay: bool,
    connection: Connection,
    /// What was applied.
    tracker: SequenceTracker,
    /// The number of the latest live message, applied or not.
    newest_live: Option<u64>,
    replay: Option<Replay>,
    waiting: Waiting<P>,
    vigil: Vigil,
    retry_at: Option<Instant>,
    retry_delay: Duration,
    /// A replay was ever answered.
    answers: bool,
    /// Replays bring nothing now, and that was told.
    unanswered: bool,
    /// What is known may be behind the publisher: a replay broke off, or a look that should have been answered was not.
    /// The next live message in order ends it.
    doubtful: bool,
    /// Everything was asked for and did not come.
    rebuild_owed: bool,
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
            connection: Connection::NotYet,
            tracker: SequenceTracker::default(),
            newest_live: None,
            replay: None,
            waiting: Waiting::new(),
            vigil: Vigil::new(),
            retry_at: None,
            retry_delay: FIRST_RETRY,
            answers: false,
            unanswered: false,
            doubtful: false,
            rebuild_owed: false,
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

    /// Whether the publisher is there: connected, and something was ever received.
    pub(crate) fn reached(&self) -> bool {
        self.reached && self.connection == Connection::Up
    }

    /// Whether what is known is behind what the publisher has told, or may be.
    pub(crate) fn is_behind(&self) -> bool {
        self.doubtful || self.holds_up()
    }

    /// Whether it is not known what the publisher has told: it should have answered, and did not.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// Whether the publisher was ever connected, and whether it is now.
    pub(crate) fn connection(&self) -> (bool, bool) {
        (
            self.connection != Connection::NotYet,
            self.connection == Connection::Up,
        )
    }

    /// Whether requests for a replay are not answered.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    /// Whether replays are answered.
    pub(crate) fn answers(&self) -> bool {
        self.answers && !self.unanswered
    }

    fn holds_up(&self) -> bool {
        self.replay.as_ref().is_some_and(Replay::holds_up)
    }

    /// When [`Recovery::tick`] has something to do, if nothing is received before.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if let Some(replay) = &self.replay {
            return Some(replay.deadline);
        }
        let look = self.vigil.at().filter(|_| !self.unanswered);
        [self.retry_at, look].into_iter().flatten().min()
    }

    /// The subscription is connected, maybe again.
    pub(crate) fn connected(&mut self, now: Instant, actions: &mut Actions<P>) {
        let before = std::mem::replace(&mut self.connection, Connection::Up);
        let is_first = before == Connection::NotYet;
        let known = self.tracker.last().is_some();
        if before == Connection::Up {
            // A connection replaced another that was not known to be lost.
            self.newest_live = None;
            self.waiting.clear();
        }
        match &mut self.replay {
            Some(replay) if is_first && !known => replay.deadline = now + REPLAY_TIMEOUT,
            _ if !self.can_replay => {
                if known && !is_first {
                    self.void(ResetReason::ConnectionLost, actions);
                }
            }
            _ if known => self.ask(Goal::Prove, now, actions),
            _ => self.ask(Goal::Rebuild, now, actions),
        }
    }

    /// The connection is lost. Whoever connects next may be another publisher, so that nothing of this one is mixed with
    /// what that one sends.
    pub(crate) fn disconnected(&mut self, actions: &mut Actions<P>) {
        if self.connection != Connection::Up {
            return;
        }
        self.connection = Connection::Down;
        if self.replay.take().is_some() {
            actions.push(Action::StopAsking);
        }
        (self.newest_live, self.retry_at) = (None, None);
        self.waiting.clear();
        self.vigil.end();
    }

    /// A message could not be taken: what is known may be wrong. The connection is closed next.
    pub(crate) fn spoiled(&mut self, actions: &mut Actions<P>) {
        self.waiting.clear();
        if self.tracker.last().is_some() {
            self.void(ResetReason::LimitExceeded, actions);
        }
    }

    /// The replay asked for last was broken off for what the publisher sent: it is given up at the next tick.
    pub(crate) fn replay_failed(&mut self, now: Instant) {
        if let Some(replay) = &mut self.replay {
            replay.deadline = now;
        }
    }

    /// Drops the messages that wait; the replay's end shows that they are missing.
    pub(crate) fn make_room(&mut self) {
        self.waiting.clear();
    }

    /// A message of the live stream.
    pub(crate) fn live(&mut self, sequence: u64, payload: P, now: Instant, actions: &mut Actions<P>) {
        self.reached = true;
        if self.can_replay {
            self.vigil.heard(now);
        }
        if self.holds_up() {
            let went_back = self.newest_live.is_some_and(|newest| sequence <= newest);
            self.newest_live = Some(sequence);
            if went_back {
                self.restart(actions);
                return self.first(sequence, payload, now, actions);
            }
            return self.waiting.push(sequence, payload);
        }
        self.newest_live = Some(sequence);
        if self.tracker.last().is_none() {
            return self.first(sequence, payload, now, actions);
        }
        match self.tracker.observe(sequence, fingerprint(&payload)) {
            Step::InOrder => {
                self.doubtful = false;
                if let Some(replay) = &mut self.replay {
                    replay.overtaken = true;
                }
                actions.push(Action::Apply(payload));
            }
            Step::Duplicate => {}
            Step::Restarted => {
                self.restart(actions);
                self.first(sequence, payload, now, actions);
            }
            Step::Gap { .. } => {
                actions.push(Action::CountGap);
                if self.can_replay {
                    self.ask(Goal::Fill, now, actions);
                    self.waiting.push(sequence, payload);
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
        (self.answers, self.unanswered) = (true, false);
        let mark = fingerprint(&payload);
        if first {
            self.begin_replay(goal, sequence, actions);
        }
        match self.tracker.observe(sequence, mark) {
            Step::InOrder => {
                self.progressed();
                actions.push(Action::Apply(payload));
            }
            Step::Duplicate => {}
            // What waits came over the present connection, from the publisher that sends this.
            Step::Restarted => {
                self.void(ResetReason::Restarted, actions);
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

    /// The first batch of a replay has come.
    fn begin_replay(&mut self, goal: Goal, sequence: u64, actions: &mut Actions<P>) {
        let last = self.tracker.last();
        if goal == Goal::Rebuild {
            self.rebuild_owed = false;
            if last.is_some() {
                self.void(ResetReason::Rebuild, actions);
            }
        } else if last.is_some_and(|last| sequence > last) {
            // The last message known is no longer there: what lies between cannot be known, nor whose this is.
            self.void(ResetReason::GapNotReplayed, actions);
        }
        if self.tracker.last().is_none() {
            self.complete = sequence == 0;
        }
    }

    fn progressed(&mut self) {
        if let Some(replay) = &mut self.replay {
            replay.progress = true;
        }
    }

    /// A live message while nothing is known.
    fn first(&mut self, sequence: u64, payload: P, now: Instant, actions: &mut Actions<P>) {
        if sequence > 0 && self.can_replay {
            self.waiting.push(sequence, payload);
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

    /// The publisher started anew. What waits is of the run before, or will be replayed.
    fn restart(&mut self, actions: &mut Actions<P>) {
        self.void(ResetReason::Restarted, actions);
        self.waiting.clear();
    }

    fn void(&mut self, reason: ResetReason, actions: &mut Actions<P>) {
        self.tracker.forget();
        (self.complete, self.doubtful) = (false, false);
        actions.push(Action::Reset(reason));
    }

    fn ask(&mut self, goal: Goal, now: Instant, actions: &mut Actions<P>) {
        let from = match goal {
            Goal::Rebuild => 0,
            Goal::Fill | Goal::Prove | Goal::Look => self.tracker.last().unwrap_or(0),
        };
        self.retry_at = None;
        self.replay = Some(Replay::new(goal, now + REPLAY_TIMEOUT));
        actions.push(Action::Ask(from));
    }

    fn ask_in_passing(&mut self, goal: Goal, now: Instant, actions: &mut Actions<P>) {
        self.ask(goal, now, actions);
        self.replay.iter_mut().for_each(|replay| replay.in_passing = true);
    }
}

#[cfg(test)]
mod limits_tests;
#[cfg(test)]
mod model;
#[cfg(test)]
mod silence_tests;
#[cfg(test)]
mod tests;
