//! Line buffer: whole lines of a stream that arrives in pieces.

use thiserror::Error;

/// Buffer of the bytes after the last whole line.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    longest: usize,
}

/// A line is longer than the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a line of the watch is longer than `max-bytes`, {longest} bytes")]
pub struct LineTooLong {
    longest: usize,
}

impl LineBuffer {
    /// Returns an empty buffer for lines of at most `longest` bytes.
    #[must_use]
    pub fn new(longest: usize) -> Self {
        Self {
            bytes: Vec::new(),
            longest,
        }
    }

    /// Takes a piece, and returns the lines that are whole now. Empty lines are left out.
    ///
    /// # Errors
    /// [`LineTooLong`].
    pub fn take(&mut self, piece: &[u8]) -> Result<Vec<Vec<u8>>, LineTooLong> {
        let mut lines = Vec::new();
        let mut parts = piece.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            if self.bytes.len() + part.len() > self.longest {
                return Err(LineTooLong {
                    longest: self.longest,
                });
            }
            self.bytes.extend_from_slice(part);
            if parts.peek().is_some() {
                lines.push(std::mem::take(&mut self.bytes));
            }
        }
        lines.retain(|line| !line.trim_ascii().is_empty());
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_over_pieces_and_the_rest_is_kept() {
        let mut buffer = LineBuffer::new(8);
        assert_eq!(buffer.take(b"ab"), Ok(vec![]));
        assert_eq!(
            buffer.take(b"c\n\nd\ne"),
            Ok(vec![b"abc".to_vec(), b"d".to_vec()])
        );
        assert_eq!(buffer.take(b"\n"), Ok(vec![b"e".to_vec()]));
    }

    #[test]
    fn a_line_beyond_the_bound_is_an_error() {
        let mut buffer = LineBuffer::new(3);
        assert_eq!(buffer.take(b"abc"), Ok(vec![]));
        assert_eq!(buffer.take(b"d"), Err(LineTooLong { longest: 3 }));
    }
}
