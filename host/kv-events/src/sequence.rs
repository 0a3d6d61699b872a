//! Sequence tracker: classifies a message as in order, duplicate, after a gap, or of a restarted publisher.
//!
//! Numbers alone do not distinguish a duplicate (a live message that a replay already delivered) from a publisher that
//! restarted at 0. The tracker therefore also stores fingerprints of the latest messages. The same number with the
//! same fingerprint is the same message.

use std::collections::VecDeque;

/// Classification of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceStep {
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
    /// The number decreased: the publisher has restarted with an empty cache.
    Restarted,
}

/// Number of messages kept. An older duplicate is taken for a restart, which costs a rebuild.
const REMEMBERED: usize = 1024;

/// Tracker of one publisher's sequence.
#[derive(Debug, Clone, Default)]
pub struct SequenceTracker {
    /// The latest messages, oldest first: number and fingerprint.
    recent: VecDeque<(u64, u64)>,
}

impl SequenceTracker {
    /// Returns the number of the latest message.
    #[must_use]
    pub fn last(&self) -> Option<u64> {
        self.recent.back().map(|&(sequence, _)| sequence)
    }

    /// Returns number and fingerprint of the latest message.
    #[must_use]
    pub fn newest(&self) -> Option<(u64, u64)> {
        self.recent.back().copied()
    }

    /// Returns `true` if this message was observed.
    #[must_use]
    pub fn contains(&self, sequence: u64, fingerprint: u64) -> bool {
        self.recent
            .iter()
            .rev()
            .any(|&known| known == (sequence, fingerprint))
    }

    /// Classifies a message by its number and the [`fingerprint`] of its payload. Only a message in order is recorded:
    /// after a gap or a restart the caller decides how to continue.
    pub fn observe(&mut self, sequence: u64, fingerprint: u64) -> SequenceStep {
        match self.last() {
            Some(last) if sequence <= last => {
                if self.contains(sequence, fingerprint) {
                    SequenceStep::Duplicate
                } else {
                    SequenceStep::Restarted
                }
            }
            Some(last) if sequence - last > 1 => SequenceStep::Gap {
                from: last + 1,
                to: sequence - 1,
            },
            _ => {
                self.accept(sequence, fingerprint);
                SequenceStep::InOrder
            }
        }
    }

    /// Continues from this message, whatever came before.
    pub fn accept(&mut self, sequence: u64, fingerprint: u64) {
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((sequence, fingerprint));
    }

    /// Forgets everything after a restart of the publisher.
    pub fn forget(&mut self) {
        self.recent.clear();
    }
}

/// Returns a number that distinguishes payloads with the same sequence number. Only the head is read: it contains the
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
    fn the_first_number_starts_the_sequence() {
        let mut tracker = SequenceTracker::default();
        assert_eq!(tracker.observe(7, 1), SequenceStep::InOrder);
        assert_eq!(tracker.observe(8, 2), SequenceStep::InOrder);
        assert_eq!(tracker.last(), Some(8));
    }

    #[test]
    fn a_gap_names_the_missing_numbers_and_waits_for_them() {
        let mut tracker = SequenceTracker::default();
        tracker.accept(3, 0);
        assert_eq!(tracker.observe(6, 0), SequenceStep::Gap { from: 4, to: 5 });
        assert_eq!(tracker.observe(4, 0), SequenceStep::InOrder);
    }

    #[test]
    fn the_same_number_is_a_repetition_only_with_the_same_content() {
        let mut tracker = SequenceTracker::default();
        for sequence in 0..3 {
            tracker.accept(sequence, 100 + sequence);
        }
        assert_eq!(tracker.observe(1, 101), SequenceStep::Duplicate);
        assert_eq!(tracker.observe(2, 102), SequenceStep::Duplicate);
        assert_eq!(tracker.observe(2, 999), SequenceStep::Restarted);
        assert_eq!(tracker.observe(0, 999), SequenceStep::Restarted);
    }

    #[test]
    fn a_repetition_too_far_back_is_taken_for_a_restart() {
        let mut tracker = SequenceTracker::default();
        for sequence in 0..=(REMEMBERED as u64) {
            tracker.accept(sequence, 0);
        }
        assert_eq!(tracker.observe(1, 0), SequenceStep::Duplicate);
        assert_eq!(tracker.observe(0, 0), SequenceStep::Restarted);
    }

    #[test]
    fn starts_over_after_forgetting() {
        let mut tracker = SequenceTracker::default();
        tracker.accept(9, 0);
        tracker.forget();
        assert_eq!(tracker.observe(0, 0), SequenceStep::InOrder);
    }

    #[test]
    fn the_last_numbers_do_not_overflow() {
        let mut tracker = SequenceTracker::default();
        tracker.accept(u64::MAX, 0);
        assert_eq!(tracker.observe(u64::MAX, 1), SequenceStep::Restarted);
        tracker.forget();
        tracker.accept(0, 0);
        assert_eq!(
            tracker.observe(u64::MAX, 0),
            SequenceStep::Gap {
                from: 1,
                to: u64::MAX - 1
            }
        );
    }

    #[test]
    fn fingerprints_distinguish_two_runs_by_their_timestamp() {
        assert_ne!(fingerprint(&[0x93, 1, 2]), fingerprint(&[0x93, 1, 3]));
        assert_ne!(fingerprint(&[]), fingerprint(&[0]));
        assert_eq!(fingerprint(&[7; 300]), fingerprint(&[7; 300]));
    }
}
