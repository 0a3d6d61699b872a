//! Fields of log lines as text, each line one line: control characters of the values are escaped.
//!
//! Log lines contain text of clients, workers and publishers. A line feed in it could forge a log line, and an escape
//! sequence could control the terminal.

use std::fmt::{self, Write};

use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::format::{DefaultVisitor, FormatFields, Writer};

/// Formatter of fields as `NAME=VALUE`, whose values have no control characters.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EscapedFields;

impl<'writer> FormatFields<'writer> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut escaping = Escaping(&mut writer);
        let mut visitor = DefaultVisitor::new(Writer::new(&mut escaping), true);
        fields.record(&mut visitor);
        visitor.finish()
    }
}

/// Passes text on with its control characters escaped, as Rust writes them in a string.
struct Escaping<'a, 'writer>(&'a mut Writer<'writer>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_escaped) {
            let (before, from) = rest.split_at(at);
            self.0.write_str(before)?;
            let mut characters = from.chars();
            if let Some(control) = characters.next() {
                write!(self.0, "{}", control.escape_default())?;
            }
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Returns whether a character is escaped: control characters, line ends, and those that reverse the direction of text.
pub(super) fn is_escaped(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing::{info, info_span};
    use tracing_subscriber::Registry;
    use tracing_subscriber::fmt::writer::BoxMakeWriter;
    use tracing_subscriber::layer::SubscriberExt;

    use super::super::{LogFormat, lines};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the lines that `log` writes with the program's formatter.
    fn written(format: LogFormat, log: impl FnOnce()) -> String {
        let written = Written::default();
        let writer = written.clone();
        let layer = lines(format, BoxMakeWriter::new(move || writer.clone()));
        tracing::subscriber::with_default(Registry::default().with(layer), log);
        String::from_utf8(written.0.lock().unwrap().clone()).unwrap()
    }

    const PLAIN: LogFormat = LogFormat::Text { is_coloured: false };

    #[test]
    fn no_value_begins_a_line_or_an_escape_sequence() {
        let forged = "a\r\n2026-01-01T00:00:00Z  WARN forged\u{1b}[2J\u{9b}1m\u{2028}b";
        let error = io::Error::other(forged);
        for format in [PLAIN, LogFormat::Json] {
            let text = written(format, || {
                let span = info_span!("request", id = %forged);
                let _in = span.enter();
                info!(service = %forged, text = forged, debug = ?forged, "registered {forged}");
                info!(error = &error as &dyn std::error::Error, "failed");
            });
            assert_eq!(text.lines().count(), 2, "{text}");
            // The colours of the level are the program's own.
            assert!(!text.contains("\u{1b}[2J"), "{text}");
            assert!(!text.contains(['\r', '\u{9b}', '\u{2028}']), "{text}");
        }
        let text = written(PLAIN, || info!(service = %forged, "registered"));
        assert!(text.contains("registered service=a\\r\\n2026-01-01"), "{text}");
        assert!(!text.contains('\u{2028}'), "{text}");
    }

    #[test]
    fn other_text_stays_as_it_is() {
        let text = written(PLAIN, || info!(name = %"größe 7 \\n", count = 3, "Ünder way"));
        assert!(text.ends_with("Ünder way name=größe 7 \\n count=3\n"), "{text}");
    }
}
