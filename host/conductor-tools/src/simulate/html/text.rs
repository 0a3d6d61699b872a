//! Text of others in a page, and numbers in few characters.

use std::fmt::{self, Write as _};

/// Text as an element's content or a quoted attribute.
#[derive(Debug, Clone, Copy)]
pub(super) struct Escaped<T>(pub(super) T);

impl<T: AsRef<str>> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.as_ref().chars() {
            match character {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // No page may hold them, not even as references.
                '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' => f.write_char('\u{fffd}')?,
                _ => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// Formats a number with about three significant digits; `-` if it is none.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let decimals = match value.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_taken_for_markup() {
        let text = Escaped("<b onclick='x'>\"&\u{1}").to_string();
        assert_eq!(text, "&lt;b onclick=&#39;x&#39;&gt;&quot;&amp;\u{fffd}");
    }

    #[test]
    fn numbers_are_rounded_and_shown_in_short() {
        let shown = [0.0, 0.2, 0.6000000001, 1.5, 12.34, 5_000.4, f64::NAN, 1e-9].map(number);
        assert_eq!(shown, ["0", "0.2", "0.6", "1.5", "12.3", "5000", "-", "0"]);
    }
}
