//! Requested replay.

use std::time::Instant;

/// Purpose of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplayGoal {
    /// Rebuild: everything the publisher still has, replacing the known state.
    Rebuild,
    /// Fill: messages after the last known one; some are known to be missing.
    Fill,
    /// Proof after a new connection: without an answer the known state is reset.
    Prove,
    /// Check of a silent publisher.
    Look,
}

#[derive(Debug)]
pub(super) struct PendingReplay {
    pub(super) goal: ReplayGoal,
    /// Set if nothing is known to be missing, or the replay before delivered nothing. Live messages then continue until
    /// this one delivers something.
    pub(super) in_passing: bool,
    /// A batch was received.
    pub(super) started: bool,
    /// A batch was applied.
    pub(super) progress: bool,
    /// A live message was applied in order meanwhile.
    pub(super) overtaken: bool,
    /// Its connection was closed because a batch exceeds the limits.
    pub(super) refused: bool,
    pub(super) deadline: Instant,
}

impl PendingReplay {
    pub(super) fn new(goal: ReplayGoal, deadline: Instant) -> Self {
        Self {
            goal,
            in_passing: false,
            started: false,
            progress: false,
            overtaken: false,
            refused: false,
            deadline,
        }
    }

    /// Returns `true` if live messages are queued behind it.
    pub(super) fn holds_up(&self) -> bool {
        self.started || !self.in_passing
    }
}
