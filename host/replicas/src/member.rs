//! Members of the fleet as this router sees them, and counters of the messages.

use crate::hello::HelloMessage;
use crate::id::RouterId;

/// Another router of the fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberReport {
    /// Identity of its run.
    pub router: RouterId,
    /// Its last hello; `None` before the first.
    pub hello: Option<HelloMessage>,
    /// Milliseconds since its newest message was sent.
    pub silence_ms: u64,
    /// Delay of its newest message in milliseconds.
    pub delay_ms: u64,
    /// Set if its gauges fade because it is silent.
    pub is_silent: bool,
    /// Its requests in flight that count.
    pub requests: u64,
    /// Its workers that this router does not have.
    pub unknown_workers: usize,
}

/// Counters of received messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PeerCounts {
    /// Messages that were applied.
    pub applied: u64,
    /// Messages that were older than one already applied.
    pub old: u64,
    /// Messages that were missing when the next one came.
    pub missing: u64,
    /// Deltas to a list of workers that was not received.
    pub unknown_table: u64,
    /// Messages that could not be read, that name another sender, or of too many routers.
    pub refused: u64,
    /// Routers that were removed after their silence.
    pub expired: u64,
}
