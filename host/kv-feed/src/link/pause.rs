//! Reconnect backoff. Pure: the end of a connection and its duration are inputs.

use std::time::Duration;

/// End of a connection or of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    /// The attempt failed.
    NotMade,
    /// Lost after this time.
    Lost(Duration),
    /// Closed after this time for a protocol error.
    Fault(Duration),
}

/// First and longest pause of an address that does not answer; pauses double.
const FIRST: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_millis(500);
/// First and longest pause after a protocol error.
const FIRST_AFTER_FAULT: Duration = Duration::from_secs(1);
const LAST_AFTER_FAULT: Duration = Duration::from_secs(60);
/// A connection of this duration resets the backoff.
const WELL: Duration = Duration::from_secs(60);

/// Backoff of one address.
#[derive(Debug)]
pub(super) struct ReconnectBackoff {
    next: Duration,
    after_fault: Duration,
}

impl ReconnectBackoff {
    pub(super) fn new() -> Self {
        Self {
            next: FIRST,
            after_fault: FIRST_AFTER_FAULT,
        }
    }

    /// Returns the pause after an end.
    pub(super) fn after(&mut self, ending: AttemptEnd) -> Duration {
        if matches!(ending, AttemptEnd::Lost(lasted) | AttemptEnd::Fault(lasted) if lasted >= WELL) {
            self.after_fault = FIRST_AFTER_FAULT;
        }
        match ending {
            AttemptEnd::NotMade => take_doubling(&mut self.next, LAST),
            AttemptEnd::Lost(_) => {
                self.next = FIRST;
                FIRST
            }
            AttemptEnd::Fault(_) => take_doubling(&mut self.after_fault, LAST_AFTER_FAULT),
        }
    }
}

fn take_doubling(pause: &mut Duration, longest: Duration) -> Duration {
    let taken = *pause;
    *pause = (taken * 2).min(longest);
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(1);

    fn pauses(endings: &[AttemptEnd]) -> Vec<u128> {
        let mut pause = ReconnectBackoff::new();
        endings
            .iter()
            .map(|ending| pause.after(*ending).as_millis())
            .collect()
    }

    #[test]
    fn an_address_that_does_not_answer_is_tried_twice_a_second() {
        assert_eq!(pauses(&[AttemptEnd::NotMade; 5]), [100, 200, 400, 500, 500]);
        let lost = [
            AttemptEnd::NotMade,
            AttemptEnd::NotMade,
            AttemptEnd::Lost(SHORT),
            AttemptEnd::NotMade,
        ];
        assert_eq!(pauses(&lost), [100, 200, 100, 100]);
    }

    #[test]
    fn a_peer_that_breaks_limits_waits_up_to_a_minute_until_it_was_well() {
        let faults = [AttemptEnd::Fault(SHORT); 8];
        let seconds = [1, 2, 4, 8, 16, 32, 60, 60].map(|seconds| seconds * 1000);
        assert_eq!(pauses(&faults), seconds);
        let well = [
            AttemptEnd::Fault(SHORT),
            AttemptEnd::Fault(SHORT),
            AttemptEnd::Fault(WELL),
        ];
        assert_eq!(pauses(&well), [1000, 2000, 1000]);
    }
}
