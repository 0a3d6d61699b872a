//! Lives: numbers that distinguish a counter from one that was made again under its name.

use std::sync::atomic::{AtomicU64, Ordering};

/// Returns another number at each call.
pub(crate) fn next_life() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
