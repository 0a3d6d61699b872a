//! Pace of the decisions about held requests that are due by the time their policy named.

/// Maximum of such decisions in a second, in one pool.
const MOST_A_SECOND: u64 = 10_000;

/// Returns the least time until a held request is decided again without an event, in microseconds. With a full queue a
/// policy that always names a millisecond would otherwise take all processors.
#[must_use]
pub const fn least_pause_us(held: usize) -> u64 {
    held as u64 * (1_000_000 / MOST_A_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_decided_ten_thousand_times_a_second() {
        assert_eq!(least_pause_us(0), 0);
        assert_eq!(least_pause_us(1_000), 100_000);
    }
}
