//! Decisions of a replay that run out of time.

/// Decisions in a row that run out of time before a replay ends early. Each takes seconds, and a log has many.
pub(super) const MOST_TIMED_OUT: u64 = 5;

/// Number of decisions in a row that ran out of time.
#[derive(Debug, Default)]
pub(super) struct TimeOuts(u64);

impl TimeOuts {
    /// Counts a decision.
    pub(super) fn count(&mut self, ran_out_of_time: bool) {
        self.0 = if ran_out_of_time { self.0 + 1 } else { 0 };
    }

    /// Returns true if so many decisions ran out of time that the rest would.
    pub(super) fn are_too_many(&self) -> bool {
        self.0 >= MOST_TIMED_OUT
    }
}
