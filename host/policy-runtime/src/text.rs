//! Truncation of texts.

/// Returns at most `most` bytes of a text, cut between characters.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}
