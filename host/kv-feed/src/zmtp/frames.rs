//! Frames: a byte of flags, a length of one byte or eight, and the body.

use super::fault::Fault;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Memory overhead of a frame.
pub(crate) const FRAME_COST: usize = 256;
/// Most frames of one message; event messages have at most four.
pub(super) const MAX_FRAMES: usize = 8;
/// Longest command. Those of a handshake have a few hundred bytes.
pub(super) const MAX_COMMAND: usize = 8 << 10;

/// Header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Another frame of the same message follows.
    pub(super) has_more: bool,
    /// The frame is a command of the protocol instead of a part of a message.
    pub(super) is_command: bool,
    pub(super) length: u64,
}

impl FrameHeader {
    /// Parses the header at the start of `bytes` and returns it with its own length, or `None` if bytes are missing.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Fault> {
        let [flags, rest @ ..] = bytes else {
            return Ok(None);
        };
        if flags & !(MORE | LONG | COMMAND) != 0 || flags & (MORE | COMMAND) == MORE | COMMAND {
            return Err(Fault::Malformed);
        }
        let (length, width) = if flags & LONG == 0 {
            (rest.first().map(|&length| u64::from(length)), 2)
        } else {
            (rest.first_chunk().map(|length| u64::from_be_bytes(*length)), 9)
        };
        Ok(length.map(|length| {
            let header = Self {
                has_more: flags & MORE != 0,
                is_command: flags & COMMAND != 0,
                length,
            };
            (header, width)
        }))
    }
}

/// Writes one frame.
pub(super) fn write_frame(out: &mut Vec<u8>, is_command: bool, has_more: bool, body: &[u8]) {
    let kind = if is_command { COMMAND } else { 0 } | if has_more { MORE } else { 0 };
    match u8::try_from(body.len()) {
        Ok(length) => out.extend([kind, length]),
        Err(_) => {
            out.push(kind | LONG);
            out.extend((body.len() as u64).to_be_bytes());
        }
    }
    out.extend(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_headers_round_trip() {
        for length in [0, 1, 255, 256, 70_000] {
            for (is_command, has_more) in [(false, false), (false, true), (true, false)] {
                let mut bytes = Vec::new();
                write_frame(&mut bytes, is_command, has_more, &vec![7; length]);
                let (header, width) = FrameHeader::parse(&bytes).unwrap().unwrap();
                assert_eq!((header.is_command, header.has_more), (is_command, has_more));
                assert_eq!((header.length, bytes.len() - width), (length as u64, length));
                assert_eq!(FrameHeader::parse(&bytes[..width - 1]), Ok(None));
            }
        }
    }

    #[test]
    fn reserved_flags_and_commands_of_several_frames_are_refused() {
        for flags in [8, 0x10, 0x80, MORE | COMMAND] {
            assert_eq!(FrameHeader::parse(&[flags, 0]), Err(Fault::Malformed));
        }
    }
}
