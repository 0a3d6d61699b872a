//! Cursor over one MessagePack payload: `rmp`'s low-level reads, bounded by the remaining bytes.
//!
//! This module does not know the meaning of values. A count in the payload is accepted only if the remaining bytes can
//! hold that many values. Allocations and loops are therefore bounded by the payload's length.

use rmp::Marker;
use rmp::decode::{NumValueReadError, read_int, read_marker};

/// Error of reading a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The payload ends inside the value, or a byte starts no value.
    Malformed,
    /// The value is valid but of another kind.
    Mismatch,
}

/// Remaining input. A copy is cheap and saves a position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PayloadCursor<'a> {
    rest: &'a [u8],
}

impl<'a> PayloadCursor<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }

    fn marker(&mut self) -> Result<Marker, ReadError> {
        match read_marker(&mut self.rest) {
            Ok(Marker::Reserved) | Err(_) => Err(ReadError::Malformed),
            Ok(marker) => Ok(marker),
        }
    }

    /// Returns the kind of the next value without reading it.
    pub(crate) fn peek(&self) -> Result<Marker, ReadError> {
        let mut ahead = *self;
        ahead.marker()
    }

    /// Returns `true` at the end of the input.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads a map's key. A key that is not text is skipped and returned as `None`.
    pub(crate) fn key(&mut self) -> Result<Option<&'a str>, ReadError> {
        let start = *self;
        match self.text() {
            Ok(key) => Ok(Some(key)),
            Err(ReadError::Malformed) => Err(ReadError::Malformed),
            Err(ReadError::Mismatch) => {
                *self = start;
                self.skip()?;
                Ok(None)
            }
        }
    }

    /// Reads a nil if one is next.
    pub(crate) fn take_nil(&mut self) -> Result<bool, ReadError> {
        let nil = self.peek()? == Marker::Null;
        if nil {
            self.marker()?;
        }
        Ok(nil)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ReadError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ReadError::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads a big-endian unsigned length of `width` bytes, at most 4.
    fn length(&mut self, width: usize) -> Result<usize, ReadError> {
        let bytes = self.take(width)?;
        Ok(bytes
            .iter()
            .fold(0, |length, &byte| (length << 8) | usize::from(byte)))
    }

    /// Checks that `count` values of at least `least` bytes each can be in the remaining input.
    fn believable(&self, count: usize, least: usize) -> Result<usize, ReadError> {
        match count.checked_mul(least) {
            Some(bytes) if bytes <= self.rest.len() => Ok(count),
            _ => Err(ReadError::Malformed),
        }
    }

    /// Opens an array; returns the number of values.
    pub(crate) fn array(&mut self) -> Result<usize, ReadError> {
        let count = match self.marker()? {
            Marker::FixArray(count) => usize::from(count),
            Marker::Array16 => self.length(2)?,
            Marker::Array32 => self.length(4)?,
            _ => return Err(ReadError::Mismatch),
        };
        self.believable(count, 1)
    }

    /// Opens a map; returns the number of pairs.
    pub(crate) fn map(&mut self) -> Result<usize, ReadError> {
        let pairs = match self.marker()? {
            Marker::FixMap(pairs) => usize::from(pairs),
            Marker::Map16 => self.length(2)?,
            Marker::Map32 => self.length(4)?,
            _ => return Err(ReadError::Mismatch),
        };
        self.believable(pairs, 2)
    }

    /// Reads the bytes of a string or binary.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], ReadError> {
        let length = match self.marker()? {
            Marker::FixStr(length) => usize::from(length),
            Marker::Str8 | Marker::Bin8 => self.length(1)?,
            Marker::Str16 | Marker::Bin16 => self.length(2)?,
            Marker::Str32 | Marker::Bin32 => self.length(4)?,
            _ => return Err(ReadError::Mismatch),
        };
        self.take(length)
    }

    /// Reads a UTF-8 string, or a binary with UTF-8 text: some encoders have only one of the two.
    pub(crate) fn text(&mut self) -> Result<&'a str, ReadError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| ReadError::Mismatch)
    }

    /// Reads an integer of any width, if `T` can hold it.
    pub(crate) fn integer<T: WireInteger>(&mut self) -> Result<T, ReadError> {
        T::read(&mut self.rest).map_err(|error| match error {
            NumValueReadError::TypeMismatch(marker) if marker != Marker::Reserved => ReadError::Mismatch,
            NumValueReadError::OutOfRange => ReadError::Mismatch,
            _ => ReadError::Malformed,
        })
    }

    /// Reads an unsigned integer, with a fast path for its usual forms: a payload is mostly token ids.
    pub(crate) fn unsigned(&mut self) -> Result<u32, ReadError> {
        let (number, rest) = match *self.rest {
            [one @ ..0x80, ref rest @ ..] => (u32::from(one), rest),
            [0xcc, one, ref rest @ ..] => (u32::from(one), rest),
            [0xcd, one, two, ref rest @ ..] => (u32::from(u16::from_be_bytes([one, two])), rest),
            [0xce, one, two, three, four, ref rest @ ..] => {
                (u32::from_be_bytes([one, two, three, four]), rest)
            }
            _ => return self.integer(),
        };
        self.rest = rest;
        Ok(number)
    }

    /// Reads an integer or a float.
    pub(crate) fn number(&mut self) -> Result<f64, ReadError> {
        match self.peek()? {
            Marker::F32 => {
                let bytes = self.after_marker(4)?;
                Ok(f64::from(f32::from_bits(be(bytes) as u32)))
            }
            Marker::F64 => Ok(f64::from_bits(be(self.after_marker(8)?))),
            _ => self.integer::<i64>().map(|number| number as f64),
        }
    }

    fn after_marker(&mut self, length: usize) -> Result<&'a [u8], ReadError> {
        self.marker()?;
        self.take(length)
    }

    /// Skips one value with its content. Iterative: nesting costs no stack.
    pub(crate) fn skip(&mut self) -> Result<(), ReadError> {
        let mut pending: usize = 1;
        while pending > 0 {
            pending -= 1;
            let opened = self.skip_one()?;
            // Each value takes at least one byte, so more pending values than bytes can never be satisfied.
            pending = pending.checked_add(opened).ok_or(ReadError::Malformed)?;
            self.believable(pending, 1)?;
        }
        Ok(())
    }

    /// Skips one scalar or header; returns the number of values that the header announces.
    fn skip_one(&mut self) -> Result<usize, ReadError> {
        let marker = self.marker()?;
        let scalar = match marker {
            Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::False | Marker::True => 0,
            Marker::U8 | Marker::I8 => 1,
            Marker::U16 | Marker::I16 | Marker::FixExt1 => 2,
            Marker::FixExt2 => 3,
            Marker::U32 | Marker::I32 | Marker::F32 => 4,
            Marker::FixExt4 => 5,
            Marker::U64 | Marker::I64 | Marker::F64 => 8,
            Marker::FixExt8 => 9,
            Marker::FixExt16 => 17,
            Marker::FixStr(length) => usize::from(length),
            Marker::Str8 | Marker::Bin8 => self.length(1)?,
            Marker::Str16 | Marker::Bin16 => self.length(2)?,
            Marker::Str32 | Marker::Bin32 => self.length(4)?,
            // The length of an extension excludes its type byte.
            Marker::Ext8 => self.length(1)?.saturating_add(1),
            Marker::Ext16 => self.length(2)?.saturating_add(1),
            Marker::Ext32 => self.length(4)?.saturating_add(1),
            Marker::FixArray(count) => return Ok(usize::from(count)),
            Marker::Array16 => return self.length(2),
            Marker::Array32 => return self.length(4),
            Marker::FixMap(pairs) => return Ok(2 * usize::from(pairs)),
            Marker::Map16 => return Ok(self.length(2)?.saturating_mul(2)),
            Marker::Map32 => return Ok(self.length(4)?.saturating_mul(2)),
            Marker::Reserved => return Err(ReadError::Malformed),
        };
        self.take(scalar)?;
        Ok(0)
    }
}

/// Integers of the event formats. `rmp` converts between widths and checks the range.
pub(crate) trait WireInteger: Sized {
    fn read(rest: &mut &[u8]) -> Result<Self, NumValueReadError>;
}

macro_rules! integers {
    ($($kind:ty),*) => {$(
        impl WireInteger for $kind {
            #[inline]
            fn read(rest: &mut &[u8]) -> Result<Self, NumValueReadError> {
                read_int(rest)
            }
        }
    )*};
}
integers!(u16, u32, u64, i64);

/// Returns up to 8 bytes as a big-endian number.
pub(crate) fn be(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, &byte| (number << 8) | u64::from(byte))
}
