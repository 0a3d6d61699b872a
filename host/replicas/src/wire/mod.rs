//! Bytes of messages: fixed little-endian numbers and variable-length numbers (LEB128), read within bounds.

use thiserror::Error;

/// Version of the format.
pub(crate) const VERSION: u8 = 2;
/// Maximum size of a message: what a NATS server takes by default.
pub const MOST_MESSAGE_BYTES: usize = 1 << 20;

/// Error of a message that cannot be read.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// Early end.
    #[error("the message ends too early")]
    Short,
    /// Bytes after the end.
    #[error("the message has bytes after its end")]
    Trailing,
    /// Another version of the format.
    #[error("the message has version {0}, and this router reads version {VERSION}")]
    Version(u8),
    /// Unknown kind.
    #[error("the message is of the unknown kind {0}")]
    Kind(u8),
    /// A number is too large.
    #[error("a number of the message is too large")]
    Number,
    /// Too many entries, or too many bytes.
    #[error("the message is too large")]
    Large,
    /// Rows out of order.
    #[error("the rows of the message are out of order")]
    Order,
}

/// Appends a variable-length number.
pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number as u8) | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reader of a message.
#[derive(Debug)]
pub(crate) struct WireReader<'b>(pub(crate) &'b [u8]);

impl<'b> WireReader<'b> {
    /// Begins a message: checks its size and its version.
    ///
    /// # Errors
    /// [`WireError::Large`], [`WireError::Short`] or [`WireError::Version`].
    pub(crate) fn begin(bytes: &'b [u8]) -> Result<Self, WireError> {
        if bytes.len() > MOST_MESSAGE_BYTES {
            return Err(WireError::Large);
        }
        let mut reader = Self(bytes);
        match reader.u8()? {
            VERSION => Ok(reader),
            other => Err(WireError::Version(other)),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::Short)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.take().map(u64::from_le_bytes)
    }

    /// Reads a variable-length number of at most `most`.
    pub(crate) fn varint(&mut self, most: u64) -> Result<u64, WireError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return Err(WireError::Number);
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return if number <= most {
                    Ok(number)
                } else {
                    Err(WireError::Number)
                };
            }
        }
        Err(WireError::Number)
    }

    /// Reads a number of entries of at least `least_bytes` each.
    pub(crate) fn count(&mut self, most: usize, least_bytes: usize) -> Result<usize, WireError> {
        let count = self.varint(u64::MAX)?;
        let count = usize::try_from(count).map_err(|_| WireError::Large)?;
        if count > most {
            return Err(WireError::Large);
        }
        // Nothing is reserved for entries that the message cannot have.
        if count.saturating_mul(least_bytes) > self.0.len() {
            return Err(WireError::Short);
        }
        Ok(count)
    }

    pub(crate) fn end(&self) -> Result<(), WireError> {
        self.0.is_empty().then_some(()).ok_or(WireError::Trailing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_read_back() {
        for number in [0, 1, 0x7f, 0x80, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            let mut reader = WireReader(&bytes);
            assert_eq!(reader.varint(u64::MAX), Ok(number));
            assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn numbers_beyond_their_bound_are_refused() {
        let read = |bytes: &[u8], most| WireReader(bytes).varint(most);
        assert_eq!(read(&[0x80, 0x01], 127), Err(WireError::Number));
        assert_eq!(read(&[0xff; 10], u64::MAX), Err(WireError::Number));
        assert_eq!(read(&[0x80], u64::MAX), Err(WireError::Short));
        assert_eq!(WireReader(&[5, 0]).count(9, 8), Err(WireError::Short));
        assert_eq!(WireReader(&[10, 0]).count(9, 0), Err(WireError::Large));
    }
}
