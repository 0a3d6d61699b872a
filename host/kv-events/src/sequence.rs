//! Telling a message in order from one repeated, one after a gap, and one of a restarted publisher.
//!
//! Numbers alone cannot tell a repetition (a live message that a replay had already brought) from a publisher that
//! started again at 0. So the tracker also remembers a fingerprint of the latest messages: the same number with the
//! same fingerprint is the same message.

use std::collections::VecDeque;

/// What a message's number says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The next one, or the first ever.
    InOrder,
    /// Seen before.
    Duplicate,
    /// `from..=to` are missing before it.
    Gap {
        /// The first missing number.
        from: u64,
        /// The last missing number.
        to: u64,
    },
    /// The number went back: the publisher started anew, and what it held before is gone.
    Restarted,
}

/// How many messages are remembered. A repetition further back is taken for a restart, which costs a rebuild.
const REMEMBERED: usize = 1024;

/// Follows one publisher's sequence.
#[derive(Debug, Clone, Default)]
pub struct SequenceTracker {
    /// The latest messages, oldest first: number and fingerprint.
    recent: VecDeque<(u64, u64)>,
}

impl SequenceTracker {
    /// The number of the latest message, if there was one.
    #[must_use]
    pub fn last(&self) -> Option<u64> {
        self.recent.back().map(|&(sequence, _)| sequence)
    }

    /// Whether this very message was observed.
    #[must_use]
    pub fn knows(&self, sequence: u64, fingerprint: u64) -> bool {
        self.recent
            .iter()
            .rev()
            .any(|&known| known == (sequence, fingerprint))
    }

    /// Judges a message by its number and the [`fingerprint`] of its payload. Only a message in order is remembered:
    /// after a gap or a restart the caller decides how to go on.
    pub fn observe(&mut self, sequence: u64, fingerprint: u64) -> Step {
        match self.last() {
            Some(last) if sequence <= last => {
                if self.knows(sequence, fingerprint) {
                    Step::Duplicate
                } else {
                    Step::Restarted
                }
            }
            Some(last) if sequence - last > 1 => Step::Gap {
                from: last + 1,
                to: sequence - 1,
            },
            _ => {
                self.accept(sequence, fingerprint);
                Step::InOrder
            }
        }
    }

    /// Goes on from this message whatever came before it.
    pub fn accept(&mut self, sequence: u64, fingerprint: u64) {
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((sequence, fingerprint));
    }

    /// Forgets everything, for a publisher that started anew.
    pub fn forget(&mut self) {
        self.recent.clear();
    }
}

/// A number that tells one payload from another with the same sequence number. Reads only the head: it holds the
/// batch's timestamp, which differs between two runs of a publisher.
#[must_use]
pub fn fingerprint(payload: &[u8]) -> u64 {
    // FNV-1a with its usual 64-bit parameters.
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    const HEAD: usize = 128;
    let length = (payload.len() as u64).to_le_bytes();
    let head = payload.iter().take(HEAD);
    length
        .iter()
        .chain(head)
        .fold(OFFSET, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_up_from_whatever_comes_first() {
        let mut tracker = SequenceTracker::default();
        assert_eq!(tracker.observe(7, 1), Step::InOrder);
        assert_eq!(tracker.observe(8, 2), Step::InOrder);
        assert_eq!(tracker.last(), Some(8));
    }

    #[test]
    fn names_what_a_gap_misses_and_waits_for_it() {
        let mut tracker = SequenceTracker::default();
        tracker.accept(3, 0);
        assert_eq!(tracker.observe(6, 0), Step::Gap { from: 4, to: 5 });
        assert_eq!(tracker.observe(4, 0), Step::InOrder);
    }

    #[test]
    fn the_same_number_is_a_repetition_only_with_the_same_content() {
        let mut tracker = SequenceTracker::default();
        for sequence in 0..3 {
            tracker.accept(sequence, 100 + sequence);
        }
        assert_eq!(tracker.observe(1, 101), Step::Duplicate);
        assert_eq!(tracker.observe(2, 102), Step::Duplicate);
        assert_eq!(tracker.observe(2, 999), Step::Restarted);
        assert_eq!(tracker.observe(0, 999), Step::Restarted);
    }

    #[test]
    fn a_repetition_too_far_back_is_taken_for_a_restart() {
        let mut tracker = SequenceTracker::default();
        for sequence in 0..=(REMEMBERED as u64) {
            tracker.accept(sequence, 0);
        }
        assert_eq!(tracker.observe(1, 0), Step::Duplicate);
        assert_eq!(tracker.observe(0, 0), Step::Restarted);
    }

    #[test]
    fn starts_over_after_forgetting() {
        let mut tracker = SequenceTracker::default();
        tracker.accept(9, 0);
        tracker.forget();
        assert_eq!(tracker.observe(0, 0), Step::InOrder);
    }

    #[test]
    fn the_last_numbers_do_not_overflow() {
        let mut tracker = SequenceTracker::default();
        tracker.accept(u64::MAX, 0);
        assert_eq!(tracker.observe(u64::MAX, 1), Step::Restarted);
        tracker.forget();
        tracker.accept(0, 0);
        assert_eq!(
            tracker.observe(u64::MAX, 0),
            Step::Gap {
                from: 1,
                to: u64::MAX - 1
            }
        );
    }

    #[test]
    fn fingerprints_tell_two_runs_apart_by_their_timestamp() {
        assert_ne!(fingerprint(&[0x93, 1, 2]), fingerprint(&[0x93, 1, 3]));
        assert_ne!(fingerprint(&[]), fingerprint(&[0]));
        assert_eq!(fingerprint(&[7; 300]), fingerprint(&[7; 300]));
    }
}
