//! Request id in log lines.

use std::fmt::{self, Display, Formatter, Write};

use http::HeaderValue;

/// Maximum of characters logged: clients choose the id.
const LONGEST: usize = 64;

/// Lazily formatted `x-request-id`: formatted only if the log line is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestId<'a>(pub(crate) &'a HeaderValue);

impl RequestId<'_> {
    /// Returns the text at once. The usual id has visible characters only, and is copied as it is.
    pub(crate) fn text(self) -> Box<str> {
        let bytes = self.0.as_bytes();
        let is_plain = bytes.len() <= LONGEST && bytes.iter().all(u8::is_ascii_graphic);
        match std::str::from_utf8(bytes) {
            Ok(text) if is_plain => text.into(),
            _ => self.to_string().into(),
        }
    }
}

impl Display for RequestId<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for byte in self.0.as_bytes().iter().take(LONGEST) {
            f.write_char(if byte.is_ascii_graphic() {
                char::from(*byte)
            } else {
                '?'
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(id: &[u8], expected: &str) {
        let id = HeaderValue::from_bytes(id).unwrap();
        assert_eq!(RequestId(&id).to_string(), expected);
        assert_eq!(&*RequestId(&id).text(), expected);
    }

    #[test]
    fn an_id_is_shown_in_visible_characters_up_to_a_length() {
        check(b"req-1:a", "req-1:a");
        check(b"a\tb \xffc", "a?b??c");
        check(&[b'x'; 65], &"x".repeat(64));
    }
}
