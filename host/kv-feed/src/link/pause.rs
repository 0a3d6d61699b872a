//! Pauses before a connection is made again. Pure: what ended and how long it lasted come in.

use std::time::Duration;

/// How a connection, or the attempt to make one, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// None was made.
    NotMade,
    /// It was lost after so long.
    Lost(Duration),
    /// It was closed after so long for what the peer sent.
    Fault(Duration),
}

/// First and longest pause of an address that does not answer, doubling in between.
const FIRST: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_millis(500);
/// The same for a peer that broke a limit or the protocol.
const FIRST_AFTER_FAULT: Duration = Duration::from_secs(1);
const LAST_AFTER_FAULT: Duration = Duration::from_secs(60);
/// A connection that lasted so long shows that its peer is well.
const WELL: Duration = Duration::from_secs(60);

/// The pauses of one address.
#[derive(Debug)]
pub(super) struct Pause {
    next: Duration,
    after_fault: Duration,
}

impl Pause {
    pub(super) fn new() -> Self {
        Self {
            next: FIRST,
            after_fault: FIRST_AFTER_FAULT,
        }
    }

    /// Returns the pause after an ending.
    pub(super) fn after(&mut self, ending: Ending) -> Duration {
        if matches!(ending, Ending::Lost(lasted) | Ending::Fault(lasted) if lasted >= WELL) {
            self.after_fault = FIRST_AFTER_FAULT;
        }
        match ending {
            Ending::NotMade => take_doubling(&mut self.next, LAST),
            Ending::Lost(_) => {
                self.next = FIRST;
                FIRST
            }
            Ending::Fault(_) => take_doubling(&mut self.after_fault, LAST_AFTER_FAULT),
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

    fn pauses(endings: &[Ending]) -> Vec<u128> {
        let mut pause = Pause::new();
        endings
            .iter()
            .map(|ending| pause.after(*ending).as_millis())
            .collect()
    }

    #[test]
    fn an_address_that_does_not_answer_is_tried_twice_a_second() {
        assert_eq!(pauses(&[Ending::NotMade; 5]), [100, 200, 400, 500, 500]);
        let lost = [
            Ending::NotMade,
            Ending::NotMade,
            Ending::Lost(SHORT),
            Ending::NotMade,
        ];
        assert_eq!(pauses(&lost), [100, 200, 100, 100]);
    }

    #[test]
    fn a_peer_that_breaks_limits_waits_up_to_a_minute_until_it_was_well() {
        let faults = [Ending::Fault(SHORT); 8];
        let seconds = [1, 2, 4, 8, 16, 32, 60, 60].map(|seconds| seconds * 1000);
        assert_eq!(pauses(&faults), seconds);
        let well = [Ending::Fault(SHORT), Ending::Fault(SHORT), Ending::Fault(WELL)];
        assert_eq!(pauses(&well), [1000, 2000, 1000]);
    }
}
