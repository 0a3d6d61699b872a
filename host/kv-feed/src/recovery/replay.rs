//! A replay that was asked for.

use std::time::Instant;

/// What it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// Everything the publisher still has, in place of what is known.
    Rebuild,
    /// What came after the last message known: some is known to be missing.
    Fill,
    /// The same after a connection came back: without an answer nothing known can stand.
    Prove,
    /// The same while all seems well: is the silence true?
    Look,
}

#[derive(Debug)]
pub(super) struct Replay {
    pub(super) goal: Goal,
    /// Nothing is known to be missing, or the one before brought nothing: live messages go on until it brings something.
    pub(super) in_passing: bool,
    /// Whether a batch has come.
    pub(super) started: bool,
    /// Whether a batch was applied.
    pub(super) progress: bool,
    /// Whether a live message was applied in order meanwhile.
    pub(super) overtaken: bool,
    pub(super) deadline: Instant,
}

impl Replay {
    pub(super) fn new(goal: Goal, deadline: Instant) -> Self {
        Self {
            goal,
            in_passing: false,
            started: false,
            progress: false,
            overtaken: false,
            deadline,
        }
    }

    /// Whether live messages wait for it.
    pub(super) fn holds_up(&self) -> bool {
        self.started || !self.in_passing
    }
}
