//! Latency targets of served requests.

/// Limits that a served request has to keep to be of use: Mooncake's evaluation has 30 s, and 100, 200 or 300 ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyTargets {
    /// Limit from the arrival to the first token, in microseconds.
    pub ttft_us: u64,
    /// The mean of the longest tenth of the times between tokens, in microseconds.
    pub tbt_us: u64,
}

impl Default for LatencyTargets {
    fn default() -> Self {
        Self {
            ttft_us: 30_000_000,
            tbt_us: 100_000,
        }
    }
}
