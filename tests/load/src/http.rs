//! HTTP/1.1 subset for the bench: heads, content-length and chunked bodies, parsed incrementally.
//!
//! Not a general parser: the peers are our own processes on loopback. Wire format: RFC 9112.

use thiserror::Error;

/// The longest head accepted, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// Reason for which received bytes are no message.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub(crate) enum MalformedMessage {
    /// No end of the head within the limit.
    #[error("find the end of a head within {MAX_HEAD} bytes")]
    HeadTooLong,
    /// A content-length that is no number.
    #[error("read the content-length")]
    ContentLength,
    /// A chunk whose size or ending is wrong.
    #[error("read a chunk")]
    Chunk,
}

/// Delimitation of a message's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Neither header present: no body in a request, unusable in a reply on a kept connection.
    None,
    /// `content-length`, in bytes.
    Exact(u64),
    /// `transfer-encoding: chunked`.
    Chunked,
}

/// The head of a request or reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    /// The request line or status line, without its line end.
    pub(crate) start: &'a [u8],
    /// Delimitation of the body.
    pub(crate) framing: Framing,
    /// The sender closes after this message (`connection: close`).
    pub(crate) close: bool,
}

/// Takes what a [`MessageReader`] reads.
pub(crate) trait MessageSink {
    /// Receives the head of a message.
    fn head(&mut self, head: &Head<'_>);
    /// Receives some bytes of its body, without the framing.
    fn body(&mut self, bytes: &[u8]);
}

/// Reads messages one after another from bytes cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct MessageReader {
    /// The beginning of a head whose end has not come.
    partial: Vec<u8>,
    body: Option<Body>,
}

#[derive(Debug)]
enum Body {
    Exact(u64),
    Chunked(Chunk),
}

#[derive(Debug)]
enum Chunk {
    Size { value: u64, extension: bool },
    Data { left: u64 },
    DataEnd,
    Trailer { empty_line: bool },
}

impl MessageReader {
    /// Reads up to the end of one message. Returns the bytes used, and whether the message is complete; what is left
    /// belongs to the next one.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        sink: &mut impl MessageSink,
    ) -> Result<(usize, bool), MalformedMessage> {
        let mut used = 0;
        if self.body.is_none() {
            let Some(taken) = self.feed_head(bytes, sink)? else {
                return Ok((bytes.len(), false));
            };
            used = taken;
        }
        let Some(body) = &mut self.body else {
            return Ok((used, false));
        };
        let (taken, complete) = match body {
            Body::Exact(left) => {
                let rest = &bytes[used..];
                let taken = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                if taken > 0 {
                    sink.body(&rest[..taken]);
                }
                *left -= taken as u64;
                (taken, *left == 0)
            }
            Body::Chunked(chunk) => chunk.feed(&bytes[used..], sink)?,
        };
        if complete {
            self.body = None;
        }
        Ok((used + taken, complete))
    }

    /// Returns the number of `bytes` that belong to the head, or `None` while its end has not come.
    fn feed_head(
        &mut self,
        bytes: &[u8],
        sink: &mut impl MessageSink,
    ) -> Result<Option<usize>, MalformedMessage> {
        let carried = self.partial.len();
        let whole = if carried == 0 {
            bytes
        } else {
            self.partial.extend_from_slice(bytes);
            &self.partial
        };
        // The end may straddle what was carried and what came.
        let from = carried.saturating_sub(3);
        let Some(end) = whole[from..].windows(4).position(|window| window == b"\r\n\r\n") else {
            if whole.len() > MAX_HEAD {
                return Err(MalformedMessage::HeadTooLong);
            }
            if carried == 0 {
                self.partial.extend_from_slice(bytes);
            }
            return Ok(None);
        };
        let end = from + end;
        let head = parse_head(&whole[..end])?;
        sink.head(&head);
        self.body = Some(match head.framing {
            Framing::None => Body::Exact(0),
            Framing::Exact(length) => Body::Exact(length),
            Framing::Chunked => Body::Chunked(Chunk::Size {
                value: 0,
                extension: false,
            }),
        });
        self.partial.clear();
        Ok(Some(end + 4 - carried))
    }
}

/// Reads a head, given without the empty line that ends it.
fn parse_head(bytes: &[u8]) -> Result<Head<'_>, MalformedMessage> {
    let mut lines = bytes
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut head = Head {
        start: lines.next().unwrap_or_default(),
        framing: Framing::None,
        close: false,
    };
    for line in lines {
        // Most headers are skipped by their first letter.
        if !matches!(line.first(), Some(b'c' | b'C' | b't' | b'T')) {
            continue;
        }
        if let Some(value) = header(line, b"content-length") {
            let length = std::str::from_utf8(value)
                .ok()
                .and_then(|value| value.parse().ok());
            head.framing = Framing::Exact(length.ok_or(MalformedMessage::ContentLength)?);
        } else if header(line, b"transfer-encoding")
            .is_some_and(|value| value.eq_ignore_ascii_case(b"chunked"))
        {
            head.framing = Framing::Chunked;
        } else if header(line, b"connection").is_some_and(|value| value.eq_ignore_ascii_case(b"close")) {
            head.close = true;
        }
    }
    Ok(head)
}

fn header<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (own, value) = line.split_at_checked(name.len())?;
    let value = value.strip_prefix(b":")?;
    own.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

impl Chunk {
    fn feed(&mut self, bytes: &[u8], sink: &mut impl MessageSink) -> Result<(usize, bool), MalformedMessage> {
        let mut at = 0;
        while at < bytes.len() {
            if let Self::Data { left } = self {
                let taken = (bytes.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                sink.body(&bytes[at..at + taken]);
                at += taken;
                *left -= taken as u64;
                if *left == 0 {
                    *self = Self::DataEnd;
                }
                continue;
            }
            let byte = bytes[at];
            at += 1;
            if self.step(byte)? {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    /// Takes one byte of framing; true at the end of the body.
    fn step(&mut self, byte: u8) -> Result<bool, MalformedMessage> {
        match (&mut *self, byte) {
            (Self::Size { value: 0, .. }, b'\n') => *self = Self::Trailer { empty_line: true },
            (Self::Size { value, .. }, b'\n') => *self = Self::Data { left: *value },
            (Self::Size { extension, .. }, b';' | b'\r') => *extension = true,
            (Self::Size { extension: true, .. }, _) => {}
            (
                Self::Size {
                    value,
                    extension: false,
                },
                _,
            ) => {
                let digit = char::from(byte).to_digit(16).ok_or(MalformedMessage::Chunk)?;
                *value = value.checked_mul(16).ok_or(MalformedMessage::Chunk)? | u64::from(digit);
            }
            (Self::DataEnd, b'\n') => {
                *self = Self::Size {
                    value: 0,
                    extension: false,
                }
            }
            (Self::Trailer { empty_line: true }, b'\n') => return Ok(true),
            (Self::Trailer { empty_line }, b'\n') => *empty_line = true,
            (Self::DataEnd | Self::Trailer { .. }, b'\r') => {}
            (Self::Trailer { empty_line }, _) => *empty_line = false,
            (Self::DataEnd | Self::Data { .. }, _) => return Err(MalformedMessage::Chunk),
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(String);

    impl MessageSink for Seen {
        fn head(&mut self, head: &Head<'_>) {
            self.0 += &format!(
                "[{}{}]",
                String::from_utf8_lossy(head.start),
                if head.close { " close" } else { "" }
            );
        }

        fn body(&mut self, bytes: &[u8]) {
            self.0 += &String::from_utf8_lossy(bytes);
        }
    }

    /// Reads `wire` whole, byte by byte, and in every cut into two.
    #[track_caller]
    fn check(wire: &str, expected: Result<&str, MalformedMessage>) {
        let cuts = (0..=wire.len()).map(|cut| vec![&wire.as_bytes()[..cut], &wire.as_bytes()[cut..]]);
        for pieces in cuts.chain([wire.as_bytes().chunks(1).collect()]) {
            assert_eq!(
                read(&pieces).as_deref(),
                expected.as_ref().map(|text| *text),
                "{pieces:?}"
            );
        }
    }

    fn read(pieces: &[&[u8]]) -> Result<String, MalformedMessage> {
        let (mut reader, mut seen) = (MessageReader::default(), Seen::default());
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let (used, complete) = reader.feed(rest, &mut seen)?;
                rest = &rest[used..];
                seen.0 += if complete { "|" } else { "" };
            }
        }
        Ok(seen.0)
    }

    #[test]
    fn messages_are_read_from_chunks_of_any_size() {
        check(
            "GET /health HTTP/1.1\r\nhost: x\r\n\r\n",
            Ok("[GET /health HTTP/1.1]|"),
        );
        check(
            "A\r\nContent-Length: 3\r\n\r\nabcB\r\nCONNECTION:close\r\n\r\n",
            Ok("[A]abc|[B close]|"),
        );
        check(
            "A\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\nB\r\n\r\n",
            Ok("[A]abcd|[B]|"),
        );
        check(
            "A\r\ntransfer-encoding: chunked\r\n\r\n0\r\ntrailer: x\r\n\r\n",
            Ok("[A]|"),
        );
    }

    #[test]
    fn messages_without_a_valid_length_are_refused() {
        check(
            "A\r\ncontent-length: x\r\n\r\n",
            Err(MalformedMessage::ContentLength),
        );
        check(
            "A\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
            Err(MalformedMessage::Chunk),
        );
        check(
            "A\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc",
            Err(MalformedMessage::Chunk),
        );
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let endless = vec![b'a'; MAX_HEAD + 1];
        assert_eq!(read(&[&endless]), Err(MalformedMessage::HeadTooLong));
    }
}
