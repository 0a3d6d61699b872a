//! Seed of a feed: the state at a position that another router has, instead of the start of the publisher.
//!
//! The seed needs the same proof as a new connection. A replay from its last message is requested: receiving that very
//! message proves that it is of this publisher and that nothing after it is lost.

use std::ops::Deref;
use std::time::Instant;

use super::replay::ReplayGoal;
use super::{FeedRecovery, RecoveryAction, RecoveryActions};
use crate::seed::FeedPosition;

impl<P: Deref<Target = [u8]>> FeedRecovery<P> {
    /// Returns the position of the applied messages. `None` if nothing is known, or if messages may be missing.
    pub(crate) fn position(&self) -> Option<FeedPosition> {
        let (sequence, fingerprint) = self.tracker.newest()?;
        let is_current = self.reached() && !self.is_behind();
        is_current.then_some(FeedPosition {
            sequence,
            fingerprint,
            known_from: self.known_from.unwrap_or(sequence),
        })
    }

    /// Returns whether a seed reaches further back than the known state, and can be proven.
    pub(crate) fn needs_seed(&self, seed: &FeedPosition) -> bool {
        let is_older = self.known_from.is_none_or(|known| seed.known_from < known);
        self.can_replay && self.reached() && !self.is_behind() && is_older
    }

    /// Continues from a seed; the caller has replaced the delivered state by it.
    pub(crate) fn seed(&mut self, seed: &FeedPosition, now: Instant, actions: &mut RecoveryActions<P>) {
        if self.replay.take().is_some() {
            actions.push(RecoveryAction::CancelReplay);
        }
        self.waiting.clear();
        self.tracker.forget();
        self.tracker.accept(seed.sequence, seed.fingerprint);
        (self.known_from, self.doubtful, self.rebuild_owed) = (Some(seed.known_from), false, false);
        self.request_replay(ReplayGoal::Prove, now, actions);
    }
}
