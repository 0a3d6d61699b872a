//! Truncation and cleaning of texts that come from components.

/// Returns at most `most` bytes of a text, cut between characters.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

/// Returns at most `most` bytes of a text in one line, with control characters blanked: a component must not forge
/// lines of the router, nor send commands to a terminal.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_and_stays_one_line() {
        assert_eq!(one_line("a\nb\u{1b}[31m", 1024), "a b [31m");
        assert_eq!(one_line(&"ä".repeat(2000), 1023).len(), 1022);
    }
}
