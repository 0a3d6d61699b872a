//! Control characters of foreign texts, made harmless for a terminal.

use std::borrow::Cow;

/// Returns a text with every control character spelt out. The ends of lines stay if `keeps_lines`. Clients and
/// components choose some texts, and may put control sequences into them.
#[must_use]
pub fn spelt_out(text: &str, keeps_lines: bool) -> Cow<'_, str> {
    let is_spelt = |character: char| character.is_control() && !(keeps_lines && character == '\n');
    if !text.contains(is_spelt) {
        return Cow::Borrowed(text);
    }
    let spelt = |character: char| match is_spelt(character) {
        true => character.escape_default().to_string(),
        false => character.into(),
    };
    Cow::Owned(text.chars().map(spelt).collect())
}
