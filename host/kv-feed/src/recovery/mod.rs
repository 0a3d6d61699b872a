//! Recovery state machine of one publisher: the order of messages, replay requests, and resets.
//!
//! Pure: messages, connection changes and the time are inputs, [`RecoveryAction`]s are outputs. It handles neither
//! sockets nor events. It relies on these properties (vLLM 0.32, SGLang 0.5.23 and their predecessors). Numbers
//! increase by one from 0 within one run of the publisher. A replay from `n` delivers the messages that the publisher
//! still has from `n` on, in order, then an end. Nothing indicates that the start is already dropped, or that the
//! publisher is another one. Therefore a replay always starts at the last known message: receiving that very message
//! proves that nothing was lost and that the publisher is the same.
//!
//! A new connection needs the same proof. Messages sent in between are lost, and a restarted publisher may happen to
//! continue with the very next number. Without a replay socket there is no proof, and the known state is reset.
//!
//! During a replay live messages are queued: applied at once, an old replayed store could restore a block that a newer
//! live removal has removed. Only an optimistic replay delays nothing until it delivers something, because a publisher
//! that never answers would otherwise stall the feed again and again. The first batch of a rebuild resets the state;
//! whatever the rebuild does not deliver of it is requested again.
//!
//! A replay that exceeds a limit exceeds it again while the publisher has the batch, and a rebuild would reset the
//! state and restore less of it. So no rebuild is retried until the publisher connects again or restarts.

use std::ops::Deref;
use std::time::{Duration, Instant};

use kv_events::{SequenceStep, SequenceTracker, fingerprint};

pub(crate) use self::idle_probe::FIRST_CHECK;
use self::idle_probe::IdleProbe;
use self::replay::{PendingReplay, ReplayGoal};
use self::waiting::WaitingMessages;
use crate::spec::ResetReason;

mod idle_probe;
mod outcome;
mod replay;
mod seed;
mod waiting;

/// A replay without messages for this time is given up.
pub(crate) const REPLAY_TIMEOUT: Duration = Duration::from_secs(5);
/// First pause before the next replay; it doubles with each failure ...
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// ... up to this.
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Action to execute; actions are executed in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RecoveryAction<P> {
    /// Deliver the payload of the message with this number. [`FeedRecovery::emptied`] is called afterwards if it
    /// empties caches and no reset follows.
    Apply(u64, P),
    /// Reset the delivered state.
    Reset(ResetReason),
    /// Request a replay from this number; it replaces a running one.
    RequestReplay(u64),
    /// Cancel the running replay.
    CancelReplay,
    /// Count a gap.
    CountGap,
    /// Report that replays are not answered: once until one is.
    ReportUnanswered,
    /// Subscribe again: the publisher publishes, but the subscription receives nothing.
    Resubscribe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    NotYet,
    Up,
    Down,
}

#[derive(Debug)]
pub(crate) struct FeedRecovery<P> {
    can_replay: bool,
    connection: ConnectionState,
    /// Sequence of applied messages.
    tracker: SequenceTracker,
    /// Number of the latest live message, applied or not.
    newest_live: Option<u64>,
    replay: Option<PendingReplay>,
    waiting: WaitingMessages<P>,
    idle_probe: IdleProbe,
    retry_at: Option<Instant>,
    retry_delay: Duration,
    /// Set if some replay was answered.
    answers: bool,
    /// Replays are not answered now, and that was reported.
    unanswered: bool,
    /// The known state may be behind the publisher: a replay was interrupted, or a check was not answered. The next
    /// live message in order ends this.
    doubtful: bool,
    /// A rebuild was requested and did not arrive.
    rebuild_owed: bool,
    /// A replay was refused: the publisher has a batch that exceeds the limits.
    refused: bool,
    /// Number of the oldest applied message, or of the next one if the latest emptied the caches. Everything since then
    /// was applied; 0 is the publisher's start.
    known_from: Option<u64>,
    /// Anything was ever received.
    reached: bool,
}

type RecoveryActions<P> = Vec<RecoveryAction<P>>;

impl<P: Deref<Target = [u8]>> FeedRecovery<P> {
    /// Creates the state, and requests everything if the publisher has a replay socket. A silent publisher is first
    /// checked after `first_check`.
    pub(crate) fn new(
        can_replay: bool,
        first_check: Duration,
        now: Instant,
        actions: &mut RecoveryActions<P>,
    ) -> Self {
        let mut recovery = Self {
            can_replay,
            connection: ConnectionState::NotYet,
            tracker: SequenceTracker::default(),
            newest_live: None,
            replay: None,
            waiting: WaitingMessages::new(),
            idle_probe: IdleProbe::new(first_check),
            retry_at: None,
            retry_delay: FIRST_RETRY,
            answers: false,
            unanswered: false,
            doubtful: false,
            rebuild_owed: false,
            refused: false,
            known_from: None,
            reached: false,
        };
        if can_replay {
            recovery.request_replay(ReplayGoal::Rebuild, now, actions);
        }
        recovery
    }

    pub(crate) fn last_applied(&self) -> Option<u64> {
        self.tracker.last()
    }

    /// Returns `true` if everything since the publisher's start was applied.
    pub(crate) fn complete(&self) -> bool {
        self.known_from == Some(0)
    }

    /// Returns the number of the message since which everything was applied.
    pub(crate) fn known_from(&self) -> Option<u64> {
        self.known_from
    }

    /// Returns `true` if the publisher is connected and something was ever received.
    pub(crate) fn reached(&self) -> bool {
        self.reached && self.connection == ConnectionState::Up
    }

    /// Returns `true` if messages of the publisher are missing, or may be.
    pub(crate) fn is_behind(&self) -> bool {
        self.doubtful || self.holds_up()
    }

    /// Returns `true` if messages may be missing because the publisher did not answer.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// Returns if the publisher was ever connected, and if it is now.
    pub(crate) fn connection(&self) -> (bool, bool) {
        (
            self.connection != ConnectionState::NotYet,
            self.connection == ConnectionState::Up,
        )
    }

    /// Returns `true` if replay requests are not answered.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    /// Returns `true` if a replay exceeded the limits, and rebuilds are not retried.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Returns `true` if replays are answered.
    pub(crate) fn answers(&self) -> bool {
        self.answers && !self.unanswered
    }

    fn holds_up(&self) -> bool {
        self.replay.as_ref().is_some_and(PendingReplay::holds_up)
    }

    /// Returns the time when [`FeedRecovery::tick`] must be called if nothing is received before.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if let Some(replay) = &self.replay {
            return Some(replay.deadline);
        }
        let look = self.idle_probe.at().filter(|_| !self.unanswered);
        [self.retry_at, look].into_iter().flatten().min()
    }

    /// Handles a new connection, the first or a later one.
    pub(crate) fn connected(&mut self, now: Instant, actions: &mut RecoveryActions<P>) {
        let before = std::mem::replace(&mut self.connection, ConnectionState::Up);
        let is_first = before == ConnectionState::NotYet;
        let known = self.tracker.last().is_some();
        self.refused = false;
        if before == ConnectionState::Up {
            // The connection replaces another whose loss was not noticed.
            self.newest_live = None;
            self.waiting.clear();
        }
        match &mut self.replay {
            Some(replay) if is_first && !known => replay.deadline = now + REPLAY_TIMEOUT,
            _ if !self.can_replay => {
                if known && !is_first {
                    self.reset(ResetReason::ConnectionLost, actions);
                }
            }
            _ if known => self.request_replay(ReplayGoal::Prove, now, actions),
            _ => self.request_replay(ReplayGoal::Rebuild, now, actions),
        }
    }

    /// Handles the loss of the connection. The next one may lead to another publisher, so messages of the two must not
    /// be mixed.
    pub(crate) fn disconnected(&mut self, actions: &mut RecoveryActions<P>) {
        if self.connection != ConnectionState::Up {
            return;
        }
        self.connection = ConnectionState::Down;
        if self.replay.take().is_some() {
            actions.push(RecoveryAction::CancelReplay);
        }
        (self.newest_live, self.retry_at) = (None, None);
        self.waiting.clear();
        self.idle_probe.end();
    }

    /// Handles an unreadable message: the known state may be wrong. The connection is closed next.
    pub(crate) fn message_lost(&mut self, actions: &mut RecoveryActions<P>) {
        self.waiting.clear();
        if self.tracker.last().is_some() {
            self.reset(ResetReason::LimitExceeded, actions);
        }
    }

    /// Handles an applied message that emptied the caches: nothing before it is known any more. A replay has the
    /// same message, so none is requested.
    pub(crate) fn emptied(&mut self, sequence: u64) {
        self.known_from = Some(sequence.saturating_add(1));
    }

    /// Handles a replay interrupted by a protocol error: it is given up at the next tick.
    pub(crate) fn replay_failed(&mut self, is_over_limit: bool, now: Instant) {
        if let Some(replay) = &mut self.replay {
            (replay.deadline, replay.refused) = (now, is_over_limit);
        }
    }

    /// Drops the queued messages; the end of the replay detects that they are missing.
    pub(crate) fn make_room(&mut self) {
        self.waiting.clear();
    }

    /// Handles a live message.
    pub(crate) fn live(&mut self, sequence: u64, payload: P, now: Instant, actions: &mut RecoveryActions<P>) {
        self.reached = true;
        if self.can_replay {
            self.idle_probe.received(now);
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
            SequenceStep::InOrder => {
                self.doubtful = false;
                if let Some(replay) = &mut self.replay {
                    replay.overtaken = true;
                }
                actions.push(RecoveryAction::Apply(sequence, payload));
            }
            SequenceStep::Duplicate => {}
            SequenceStep::Restarted => {
                self.restart(actions);
                self.first(sequence, payload, now, actions);
            }
            SequenceStep::Gap { .. } => {
                actions.push(RecoveryAction::CountGap);
                if self.can_replay {
                    self.request_replay(ReplayGoal::Fill, now, actions);
                    self.waiting.push(sequence, payload);
                } else {
                    self.reset(ResetReason::GapWithoutReplay, actions);
                    self.accept(sequence, payload, actions);
                }
            }
        }
    }

    /// Handles a message of the latest replay.
    pub(crate) fn replayed(
        &mut self,
        sequence: u64,
        payload: P,
        now: Instant,
        actions: &mut RecoveryActions<P>,
    ) {
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
            SequenceStep::InOrder => {
                self.progressed();
                actions.push(RecoveryAction::Apply(sequence, payload));
            }
            SequenceStep::Duplicate => {}
            // Queued messages came over the current connection, from this publisher.
            SequenceStep::Restarted => {
                self.reset(ResetReason::Restarted, actions);
                self.request_replay(ReplayGoal::Rebuild, now, actions);
            }
            // Lost in transit: request the rest, unless repeating does not help.
            SequenceStep::Gap { .. } if self.replay.as_ref().is_some_and(|replay| replay.progress) => {
                self.request_replay(ReplayGoal::Fill, now, actions);
            }
            SequenceStep::Gap { .. } => {
                self.reset(ResetReason::GapNotReplayed, actions);
                self.progressed();
                self.accept(sequence, payload, actions);
            }
        }
    }

    /// Handles the first batch of a replay.
    fn begin_replay(&mut self, goal: ReplayGoal, sequence: u64, actions: &mut RecoveryActions<P>) {
        let last = self.tracker.last();
        if goal == ReplayGoal::Rebuild {
            self.rebuild_owed = false;
            if last.is_some() {
                self.reset(ResetReason::Rebuild, actions);
            }
        } else if last.is_some_and(|last| sequence > last) {
            // The last known message is gone: the messages in between and the publisher are unknown.
            self.reset(ResetReason::GapNotReplayed, actions);
        }
        if self.tracker.last().is_none() {
            self.known_from = Some(sequence);
        }
    }

    fn progressed(&mut self) {
        if let Some(replay) = &mut self.replay {
            replay.progress = true;
        }
    }

    /// Handles a live message without known state.
    fn first(&mut self, sequence: u64, payload: P, now: Instant, actions: &mut RecoveryActions<P>) {
        if sequence > 0 && self.can_replay {
            self.waiting.push(sequence, payload);
            return self.request_replay(ReplayGoal::Rebuild, now, actions);
        }
        self.known_from = Some(sequence);
        if self.replay.take().is_some() {
            actions.push(RecoveryAction::CancelReplay);
        }
        self.accept(sequence, payload, actions);
    }

    fn accept(&mut self, sequence: u64, payload: P, actions: &mut RecoveryActions<P>) {
        self.known_from.get_or_insert(sequence);
        self.tracker.accept(sequence, fingerprint(&payload));
        actions.push(RecoveryAction::Apply(sequence, payload));
    }

    /// Handles a restart of the publisher. Queued messages belong to the run before, or will be replayed.
    fn restart(&mut self, actions: &mut RecoveryActions<P>) {
        self.reset(ResetReason::Restarted, actions);
        self.waiting.clear();
    }

    fn reset(&mut self, reason: ResetReason, actions: &mut RecoveryActions<P>) {
        self.tracker.forget();
        (self.known_from, self.doubtful) = (None, false);
        self.refused &= reason != ResetReason::Restarted;
        actions.push(RecoveryAction::Reset(reason));
    }

    fn request_replay(&mut self, goal: ReplayGoal, now: Instant, actions: &mut RecoveryActions<P>) {
        let from = match goal {
            ReplayGoal::Rebuild => 0,
            ReplayGoal::Fill | ReplayGoal::Prove | ReplayGoal::Look => self.tracker.last().unwrap_or(0),
        };
        self.retry_at = None;
        self.replay = Some(PendingReplay::new(goal, now + REPLAY_TIMEOUT));
        actions.push(RecoveryAction::RequestReplay(from));
    }

    fn request_in_passing(&mut self, goal: ReplayGoal, now: Instant, actions: &mut RecoveryActions<P>) {
        self.request_replay(goal, now, actions);
        self.replay.iter_mut().for_each(|replay| replay.in_passing = true);
    }
}

#[cfg(test)]
mod limits_tests;
#[cfg(test)]
mod model;
#[cfg(test)]
mod seed_tests;
#[cfg(test)]
mod silence_tests;
#[cfg(test)]
mod tests;
