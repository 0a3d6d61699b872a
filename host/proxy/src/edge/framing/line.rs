//! Buffer of one head line that may arrive in pieces.

use memchr::memchr;

use super::Ambiguity;

/// Bytes of a line that are kept. Lines that define a body's length are shorter. A longer one that begins so is
/// refused.
const KEPT: usize = 256;

/// Beginning of an unfinished line.
#[derive(Debug, Default)]
pub(super) struct FramedLine {
    kept: Vec<u8>,
    /// `true` if the last byte was CR.
    ends_with_cr: bool,
}

impl FramedLine {
    /// Adds bytes without LF.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<(), Ambiguity> {
        let Some((&last, before)) = bytes.split_last() else {
            return Ok(());
        };
        if self.ends_with_cr || memchr(b'\r', before).is_some() {
            return Err(Ambiguity::BareCr);
        }
        self.ends_with_cr = last == b'\r';
        let room = KEPT - self.kept.len();
        self.kept.extend_from_slice(&bytes[..room.min(bytes.len())]);
        Ok(())
    }

    /// Adds the bytes up to and with LF; returns the line without its end.
    pub(super) fn end<'a>(&'a mut self, bytes: &'a [u8]) -> Result<&'a [u8], Ambiguity> {
        let bytes = &bytes[..bytes.len() - 1];
        if self.kept.is_empty() && !self.ends_with_cr {
            let ended = bytes.strip_suffix(b"\r");
            // A CR within the line comes before its end, hence first.
            if memchr(b'\r', ended.unwrap_or(bytes)).is_some() {
                return Err(Ambiguity::BareCr);
            }
            return ended.ok_or(Ambiguity::BareLf);
        }
        self.add(bytes)?;
        if !self.ends_with_cr {
            return Err(Ambiguity::BareLf);
        }
        Ok(self.kept.strip_suffix(b"\r").unwrap_or(&self.kept))
    }

    /// Clears the line and keeps its memory.
    pub(super) fn cleared(mut self) -> Self {
        self.kept.clear();
        self.ends_with_cr = false;
        self
    }
}
