//! Texts and times of records: limits of their lengths, and microseconds since 1970.

use std::borrow::Cow;
use std::time::SystemTime;

/// Maximum recorded length of a request id in bytes. Clients choose it.
pub(crate) const MAX_ID: usize = 128;

/// Truncates a text to at most `max_bytes` bytes at a character boundary.
pub(crate) fn cut(text: &str, max_bytes: usize) -> Cow<'_, str> {
    text[..text.floor_char_boundary(max_bytes)].into()
}

/// Returns the microseconds since 1970.
#[must_use]
pub fn unix_us(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
