//! UTF-8 decoding of a file, with the position of the first invalid byte.

use crate::document::code::Code;
use crate::document::diagnostic::Diagnostics;
use crate::document::report::{Problem, Report};
use crate::document::source::Source;

/// Decodes the bytes of the file with this name in diagnostics.
///
/// # Errors
/// Line and column of the first byte that is not UTF-8.
pub fn decode(name: &str, bytes: Vec<u8>) -> Result<String, Diagnostics> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes()[at];
        // The text before the error is unchanged, so the position is the same in the text that is drawn.
        let text = String::from_utf8_lossy(error.as_bytes());
        let report = Report::new(Source::new(name, &text));
        let message = format!("the byte 0x{byte:02x} is not UTF-8");
        let end = at + char::REPLACEMENT_CHARACTER.len_utf8();
        report.push(
            Problem::new(Code::NotUtf8, &(at..end), message)
                .label("the first one")
                .help("save the file as UTF-8, the only encoding of TOML"),
        );
        report.into_diagnostics()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::render::Paint;

    #[track_caller]
    fn check(bytes: &[u8], place: &str, message: &str) {
        let mistakes = decode("conductor.toml", bytes.to_owned()).unwrap_err();
        let item = &mistakes.items()[0];
        assert_eq!(item.code, Code::NotUtf8);
        assert_eq!(item.primary.location.to_string(), place);
        assert!(item.message.contains(message), "{}", item.message);
        assert!(mistakes.render(Paint::Plain).contains(place));
    }

    #[test]
    fn the_first_byte_that_is_no_utf8_has_a_line_and_a_column() {
        check(b"\xffa", "1:1", "0xff");
        // Columns count characters, of which `\xc3\xa9` is one.
        check(b"[server]\n# \xc3\xa9\xe9t\xe9\n", "2:4", "0xe9");
        // A character truncated by the end of the file.
        check(b"a = \"\xe2\x82", "1:6", "0xe2");
    }

    #[test]
    fn utf8_text_is_decoded_unchanged() {
        assert_eq!(decode("t", "é = 1".into()).unwrap(), "é = 1");
    }
}
