//! Memory limits per publisher and in total.

use super::curve::MESSAGE_OVERHEAD;
use super::frames::{FRAME_COST, MAX_FRAMES};

/// Limits in bytes. Each is checked before memory is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedLimits {
    /// Longest frame; a longer one closes the connection.
    pub frame: usize,
    /// Longest message over all frames; a longer one closes the connection.
    pub message: usize,
    /// Most bytes queued per socket; beyond that the socket is not read.
    pub feed: usize,
    /// Most bytes queued over all feeds.
    pub total: usize,
}

impl Default for FeedLimits {
    fn default() -> Self {
        Self {
            frame: 4 << 20,
            message: 5 << 20,
            feed: 16 << 20,
            total: 256 << 20,
        }
    }
}

impl FeedLimits {
    /// Returns the memory charged for the largest message.
    pub(crate) fn largest_message(&self) -> usize {
        self.message + MAX_FRAMES * (FRAME_COST + MESSAGE_OVERHEAD)
    }
}
