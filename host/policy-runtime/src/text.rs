//! Text helpers: truncation and hexadecimal digits.

use std::fmt::Write as _;

/// Returns at most `most` bytes of a text, cut between characters.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

/// Returns bytes in hexadecimal.
pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
