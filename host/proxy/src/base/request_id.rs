//! Request id in log lines.

use std::fmt::{self, Display, Formatter, Write};

use http::HeaderValue;

/// Maximum of characters logged: clients choose the id.
const LONGEST: usize = 64;

/// Lazily formatted `x-request-id`: formatted only if the log line is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestId<'a>(pub(crate) &'a HeaderValue);

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
    }

    #[test]
    fn an_id_is_shown_in_visible_characters_up_to_a_length() {
        check(b"req-1:a", "req-1:a");
        check(b"a\tb \xffc", "a?b??c");
        check(&[b'x'; 65], &"x".repeat(64));
    }
}
