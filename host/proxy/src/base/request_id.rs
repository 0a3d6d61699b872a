//! Request ids: those that the router makes, and their text in log lines.

use std::fmt::{self, Display, Formatter, Write};
use std::io::{Cursor, Write as _};

use http::HeaderValue;

/// Maximum of characters logged: clients choose the id.
const LONGEST: usize = 64;

/// Lazily formatted `x-request-id`: formatted only if the log line is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestId<'a>(pub(crate) &'a HeaderValue);

/// Id of a request that came without one. As the owner of a header value it takes one allocation, and none for each
/// clone.
#[derive(Debug, Default)]
pub(crate) struct MadeId {
    text: [u8; LONGEST_MADE],
    len: usize,
}

/// Bytes of the longest id: `req-`, the run, a dash and the number.
const LONGEST_MADE: usize = 4 + 8 + 1 + 16;

impl MadeId {
    /// Makes the id of a request by its number and that of the run.
    pub(crate) fn new(run: u32, seq: u64) -> Self {
        let mut cursor = Cursor::new([0; LONGEST_MADE]);
        let written = write!(cursor, "req-{run:08x}-{seq:x}");
        debug_assert!(written.is_ok(), "the longest id fits");
        Self {
            len: cursor.position() as usize,
            text: cursor.into_inner(),
        }
    }
}

impl AsRef<[u8]> for MadeId {
    fn as_ref(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

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
    fn a_made_id_has_the_run_and_the_number_up_to_the_largest() {
        assert_eq!(MadeId::new(7, 255).as_ref(), b"req-00000007-ff");
        let longest = MadeId::new(u32::MAX, u64::MAX);
        assert_eq!(longest.as_ref(), b"req-ffffffff-ffffffffffffffff");
        assert_eq!(longest.as_ref().len(), LONGEST_MADE);
    }

    #[test]
    fn an_id_is_shown_in_visible_characters_up_to_a_length() {
        check(b"req-1:a", "req-1:a");
        check(b"a\tb \xffc", "a?b??c");
        check(&[b'x'; 65], &"x".repeat(64));
    }
}
