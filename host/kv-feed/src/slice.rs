//! Time slice of a feed: limits the work for one feed before the others are served.

use std::time::{Duration, Instant};

/// Messages per slice.
const MESSAGES: u16 = 256;
/// Bytes per slice, except its first message.
const BYTES: usize = 1 << 20;
/// Time per slice, except its first message.
const TIME: Duration = Duration::from_millis(10);

/// Remaining slice.
#[derive(Debug)]
pub(crate) struct TimeSlice {
    messages: u16,
    bytes: usize,
    until: Instant,
}

impl TimeSlice {
    pub(crate) fn begin(now: Instant) -> Self {
        Self {
            messages: MESSAGES,
            bytes: BYTES,
            until: now + TIME,
        }
    }

    /// Counts a message.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Returns `true` if the slice is used up.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.messages == 0 || self.bytes == 0 || (self.messages < MESSAGES && now >= self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of messages in a slice if each has this size and takes this time.
    fn taken(bytes: usize, time: Duration) -> u32 {
        let began = Instant::now();
        let mut slice = TimeSlice::begin(began);
        let mut messages = 0;
        while !slice.is_over(began + time * messages) {
            slice.spend(bytes);
            messages += 1;
        }
        messages
    }

    #[test]
    fn a_turn_ends_by_messages_bytes_or_time() {
        assert_eq!(taken(1, Duration::ZERO), u32::from(MESSAGES));
        assert_eq!(taken(BYTES / 4, Duration::ZERO), 4);
        assert_eq!(taken(1, TIME / 5), 5);
    }

    #[test]
    fn a_turn_takes_one_message_however_large_or_slow() {
        assert_eq!(taken(64 * BYTES, Duration::ZERO), 1);
        assert_eq!(taken(1, Duration::from_secs(30)), 1);
    }
}
