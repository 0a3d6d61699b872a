//! Source text, and positions in it.

use std::fmt;
use std::ops::Range;

/// Byte range of the text, half open.
pub(crate) type Span = Range<usize>;

/// Position in the file, counted as in editors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Line from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A marked position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Start of the position.
    pub location: Location,
    /// Label; may be empty.
    pub label: String,
    pub(crate) span: Span,
}

impl Mark {
    /// Returns the start of the file.
    #[must_use]
    pub fn beginning() -> Self {
        Self {
            location: Location { line: 1, column: 1 },
            label: String::new(),
            span: 0..0,
        }
    }
}

/// A named text with its line starts.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    name: String,
    text: String,
    line_starts: Vec<usize>,
}

impl Source {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        Self {
            name: name.to_owned(),
            text: text.to_owned(),
            line_starts: std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the position of a byte. Past the end is the end, and inside a character is its beginning.
    pub(crate) fn locate(&self, offset: usize) -> Location {
        let offset = self.floor(offset);
        let line = self.line_starts.partition_point(|&start| start <= offset);
        let start = self.line_starts[line - 1];
        Location {
            line,
            column: self.text[start..offset].chars().count() + 1,
        }
    }

    /// Returns the span on character boundaries within the text, so that it can be drawn.
    pub(crate) fn clamp(&self, span: &Span) -> Span {
        let start = self.floor(span.start);
        start..self.floor(span.end).max(start)
    }

    /// Returns a span as a mark.
    pub(crate) fn mark(&self, span: &Span, label: String) -> Mark {
        let span = self.clamp(span);
        Mark {
            location: self.locate(span.start),
            label,
            span,
        }
    }

    /// Returns the line of a byte, without its end.
    pub(crate) fn line_of(&self, offset: usize) -> &str {
        self.text[self.whole_lines(offset, offset)].trim_end_matches(['\n', '\r'])
    }

    /// Returns the lines from the one with byte `first` to the one with byte `last`, ends included.
    pub(crate) fn whole_lines(&self, first: usize, last: usize) -> Span {
        let start = self.line_starts[self.locate(first).line - 1];
        let end = self.line_starts.get(self.locate(last).line).copied();
        start..end.unwrap_or(self.text.len())
    }

    /// Returns every line with the offset of its first byte.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.line_starts.iter().map(|&start| (start, self.line_of(start)))
    }

    fn floor(&self, offset: usize) -> usize {
        self.text.floor_char_boundary(offset.min(self.text.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lines_and_characters_from_one() {
        let source = Source::new("t", "ab\né=1\r\n");
        let check = |offset, line, column| assert_eq!(source.locate(offset), Location { line, column });
        check(0, 1, 1);
        check(2, 1, 3);
        check(3, 2, 1);
        check(4, 2, 1);
        check(5, 2, 2);
        check(99, 3, 1);
        assert_eq!(source.line_of(5), "é=1");
    }
}
