//! Limits of what publishers may make the router hold.

use super::curve::MESSAGE_OVERHEAD;
use super::frames::{FRAME_COST, MAX_FRAMES};

/// Limits in bytes. Each is checked before memory is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedLimits {
    /// The longest frame; a longer one closes the connection.
    pub frame: usize,
    /// All frames of one message; more close the connection.
    pub message: usize,
    /// Messages of one socket that wait to be decoded; beyond it nothing is read from that socket.
    pub feed: usize,
    /// The same for all feeds together.
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
    /// Returns the memory that the largest message may be charged with.
    pub(crate) fn largest_message(&self) -> usize {
        self.message + MAX_FRAMES * (FRAME_COST + MESSAGE_OVERHEAD)
    }
}
