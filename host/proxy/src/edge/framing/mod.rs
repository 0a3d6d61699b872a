//! Protection from request smuggling: refusal of ambiguous HTTP/1.1 framing that hyper accepts.
//!
//! Hyper ends lines at a bare LF, lets `Transfer-Encoding` win over `Content-Length`, and merges equal repeated
//! lengths. RFC 9112 (sections 2.2, 6.1, 6.3 and 7.1) allows a server to refuse each of these. A server behind another
//! proxy should: if the two disagree on the end of a request, its rest becomes a request of another client.
//! [`FramingGuard`] parses along with hyper and breaks the input off at the first ambiguous message. Hyper then refuses
//! it and closes the connection.

mod guard;
mod line;

use memchr::memchr;

pub(super) use self::guard::{FramingGuard, GuardFlags};
use self::line::FramedLine;

/// Reason of a framing refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Ambiguity {
    #[error("a line ends with LF alone")]
    BareLf,
    #[error("a line has a CR that no LF follows")]
    BareCr,
    #[error("it has both Content-Length and Transfer-Encoding")]
    TwoFramings,
    #[error("it has more than one Content-Length")]
    TwoLengths,
    #[error("its Content-Length is no number")]
    BadLength,
    #[error("its Transfer-Encoding does not end with chunked")]
    BadCoding,
    #[error("Transfer-Encoding is not for HTTP/1.0")]
    OldVersion,
    #[error("a chunk's size is no hexadecimal number")]
    BadChunk,
    #[error("CONNECT is not served")]
    Connect,
}

/// Parser position within the messages of a connection.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// In a request line or header line, or before one.
    Head,
    /// In a body with this many bytes left.
    Body(u64),
    ChunkSize,
    /// In a chunk with this many bytes left, without the CRLF after it.
    Chunk(u64),
    ChunkEnd,
    Trailer,
}

/// Framing headers of the head read so far.
#[derive(Debug, Clone, Copy, Default)]
struct Framing {
    /// `true` once the request line is read.
    is_begun: bool,
    is_old: bool,
    length: Option<u64>,
    is_chunked: Option<bool>,
}

/// Incremental parser of message boundaries.
#[derive(Debug)]
pub(super) struct RequestReader {
    part: Part,
    framing: Framing,
    line: FramedLine,
}

impl RequestReader {
    pub(super) fn new() -> Self {
        Self {
            part: Part::Head,
            framing: Framing::default(),
            line: FramedLine::default(),
        }
    }

    /// Returns `true` if the next byte belongs to a head.
    pub(super) fn is_in_head(&self) -> bool {
        matches!(self.part, Part::Head)
    }

    /// Reads further bytes. An error holds the number of bytes before the ambiguity.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<(), (usize, Ambiguity)> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let read = self.step(rest).map_err(|why| (bytes.len() - rest.len(), why))?;
            rest = &rest[read..];
        }
        Ok(())
    }

    /// Reads a line, or the available part of a body. Returns the number of bytes read.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, Ambiguity> {
        match &mut self.part {
            Part::Body(left) | Part::Chunk(left) => {
                let read = (*left).min(bytes.len() as u64);
                *left -= read;
                if *left == 0 {
                    self.part = match self.part {
                        Part::Chunk(_) => Part::ChunkEnd,
                        _ => Part::Head,
                    };
                }
                Ok(read as usize)
            }
            Part::Head | Part::ChunkSize | Part::ChunkEnd | Part::Trailer => {
                let Some(end) = memchr(b'\n', bytes) else {
                    self.line.add(bytes)?;
                    return Ok(bytes.len());
                };
                self.line_ends(&bytes[..=end])?;
                Ok(end + 1)
            }
        }
    }

    /// Finishes a line with its last bytes.
    fn line_ends(&mut self, bytes: &[u8]) -> Result<(), Ambiguity> {
        let mut line = std::mem::take(&mut self.line);
        let text = line.end(bytes)?;
        self.part = match self.part {
            Part::Head if text.is_empty() && self.framing.is_begun => {
                std::mem::take(&mut self.framing).body()?
            }
            // Empty lines before a request are skipped (RFC 9112, section 2.2).
            Part::Head if text.is_empty() => Part::Head,
            Part::Head => {
                self.framing.read(text)?;
                Part::Head
            }
            Part::ChunkSize => match chunk_size(text)? {
                0 => Part::Trailer,
                size => Part::Chunk(size),
            },
            Part::ChunkEnd if text.is_empty() => Part::ChunkSize,
            Part::ChunkEnd => return Err(Ambiguity::BadChunk),
            Part::Trailer if text.is_empty() => Part::Head,
            part => part,
        };
        self.line = line.cleared();
        Ok(())
    }
}

impl Framing {
    /// Reads a header line.
    fn read(&mut self, line: &[u8]) -> Result<(), Ambiguity> {
        if !self.is_begun {
            self.is_begun = true;
            self.is_old = line.ends_with(b" HTTP/1.0");
            let is_connect = line.starts_with(b"CONNECT ");
            return if is_connect {
                Err(Ambiguity::Connect)
            } else {
                Ok(())
            };
        }
        let Some(colon) = memchr(b':', line) else {
            // Hyper refuses such a line.
            return Ok(());
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = length(value).ok_or(Ambiguity::BadLength)?;
            if self.length.replace(length).is_some() {
                return Err(Ambiguity::TwoLengths);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
            self.is_chunked = Some(last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
        }
        Ok(())
    }

    /// Returns the part after the head.
    fn body(self) -> Result<Part, Ambiguity> {
        match (self.is_chunked, self.length) {
            (Some(_), Some(_)) => Err(Ambiguity::TwoFramings),
            (Some(_), None) if self.is_old => Err(Ambiguity::OldVersion),
            (Some(false), None) => Err(Ambiguity::BadCoding),
            (Some(true), None) => Ok(Part::ChunkSize),
            (None, None | Some(0)) => Ok(Part::Head),
            (None, Some(length)) => Ok(Part::Body(length)),
        }
    }
}

/// Parses a length of digits only: no sign and no list.
fn length(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value)
        .ok()?
        .parse()
        .ok()
        .filter(|_| is_number)
}

/// Parses the size before a chunk's extensions (RFC 9112, section 7.1).
fn chunk_size(line: &[u8]) -> Result<u64, Ambiguity> {
    let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let size = size.trim_ascii_end();
    let is_number = !size.is_empty() && size.iter().all(u8::is_ascii_hexdigit);
    let size = std::str::from_utf8(size).ok().filter(|_| is_number);
    size.and_then(|size| u64::from_str_radix(size, 16).ok())
        .ok_or(Ambiguity::BadChunk)
}

#[cfg(test)]
mod tests;
