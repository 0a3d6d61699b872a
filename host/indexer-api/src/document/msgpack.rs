//! MessagePack: one map; what comes after it is not looked at, as upstream does not either.

use std::borrow::Cow;

use rmp::Marker;

use super::{Document, DocumentFault, Field, ListReader, MOST_DEPTH, MOST_VALUES};
use DocumentFault::{KeyNotText, Malformed, NotAMap};

pub(super) fn read(body: &[u8]) -> Result<Document<'_>, DocumentFault> {
    let mut reader = Reader {
        rest: body,
        budget: MOST_VALUES,
    };
    match reader.value(0)? {
        Field::Map(document) => Ok(document),
        _ => Err(NotAMap),
    }
}

struct Reader<'b> {
    rest: &'b [u8],
    budget: usize,
}

impl<'b> Reader<'b> {
    #[inline]
    fn take(&mut self, len: usize) -> Result<&'b [u8], DocumentFault> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], DocumentFault> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn len8(&mut self) -> Result<usize, DocumentFault> {
        self.bytes().map(|[len]| usize::from(len))
    }

    fn len16(&mut self) -> Result<usize, DocumentFault> {
        self.bytes().map(|len| usize::from(u16::from_be_bytes(len)))
    }

    fn len32(&mut self) -> Result<usize, DocumentFault> {
        self.bytes().map(|len| u32::from_be_bytes(len) as usize)
    }

    /// An integer that fits, if that is next; nothing is taken otherwise. The widths of tokens follow no pattern, so they are
    /// computed from the marker (`cc` to `cf` and `d0` to `d3`: 1, 2, 4, 8 bytes) rather than branched on.
    #[inline]
    fn int(&mut self) -> Option<i64> {
        let (&first, rest) = self.rest.split_first()?;
        let width = 1 << (first & 3);
        let (number, width) = match first {
            0..=0x7f | 0xe0..=0xff => (i64::from(first as i8), 0),
            0xcc..=0xcf => (i64::try_from(word(rest, width)? >> (64 - 8 * width)).ok()?, width),
            0xd0..=0xd3 => ((word(rest, width)? as i64) >> (64 - 8 * width), width),
            _ => return None,
        };
        self.rest = &rest[width..];
        Some(number)
    }

    fn value(&mut self, depth: usize) -> Result<Field<'b>, DocumentFault> {
        if let Some(number) = self.int() {
            return Ok(Field::Int(number));
        }
        let [first] = self.bytes()?;
        self.rarer(Marker::from_u8(first), depth)
    }

    fn rarer(&mut self, marker: Marker, depth: usize) -> Result<Field<'b>, DocumentFault> {
        Ok(match marker {
            // Those that fit were taken before.
            Marker::U64 => Field::Large(u64::from_be_bytes(self.bytes()?)),
            Marker::Null => Field::Nil,
            Marker::True | Marker::False => Field::Bool,
            Marker::F32 => Field::Float(f64::from(f32::from_be_bytes(self.bytes()?))),
            Marker::F64 => Field::Float(f64::from_be_bytes(self.bytes()?)),
            Marker::FixStr(len) => self.text(usize::from(len))?,
            Marker::Str8 => self.len8().and_then(|len| self.text(len))?,
            Marker::Str16 => self.len16().and_then(|len| self.text(len))?,
            Marker::Str32 => self.len32().and_then(|len| self.text(len))?,
            Marker::Bin8 => self.len8().and_then(|len| self.take(len)).map(Field::Bin)?,
            Marker::Bin16 => self.len16().and_then(|len| self.take(len)).map(Field::Bin)?,
            Marker::Bin32 => self.len32().and_then(|len| self.take(len)).map(Field::Bin)?,
            Marker::FixArray(len) => self.list(usize::from(len), depth)?,
            Marker::Array16 => self.len16().and_then(|len| self.list(len, depth))?,
            Marker::Array32 => self.len32().and_then(|len| self.list(len, depth))?,
            Marker::FixMap(len) => self.map(usize::from(len), depth)?,
            Marker::Map16 => self.len16().and_then(|len| self.map(len, depth))?,
            Marker::Map32 => self.len32().and_then(|len| self.map(len, depth))?,
            // Extensions have no place in any request.
            _ => return Err(Malformed),
        })
    }

    fn text(&mut self, len: usize) -> Result<Field<'b>, DocumentFault> {
        let text = std::str::from_utf8(self.take(len)?).map_err(|_| Malformed)?;
        Ok(Field::Text(Cow::Borrowed(text)))
    }

    fn list(&mut self, len: usize, depth: usize) -> Result<Field<'b>, DocumentFault> {
        let depth = deeper(depth)?;
        // A value takes a byte at least, so a length that is made up allocates nothing.
        if len > self.rest.len() {
            return Err(Malformed);
        }
        let mut list = ListReader::new(len);
        for _ in 0..len {
            let fits = match self.int() {
                Some(number) => list.push_int(number, &mut self.budget),
                None => {
                    let field = self.value(depth)?;
                    list.push(field, &mut self.budget)
                }
            };
            if !fits {
                return Err(Malformed);
            }
        }
        Ok(list.end())
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<Field<'b>, DocumentFault> {
        let depth = deeper(depth)?;
        let mut document = Document::default();
        for _ in 0..len {
            self.budget = self.budget.checked_sub(1).ok_or(Malformed)?;
            let Field::Text(key) = self.value(depth)? else {
                return Err(KeyNotText);
            };
            document.fields.push((key, self.value(depth)?));
        }
        Ok(Field::Map(document))
    }
}

/// The next eight bytes, or at the end of the body as many as there are, if at least `width`.
#[inline]
fn word(bytes: &[u8], width: usize) -> Option<u64> {
    if let Some(bytes) = bytes.first_chunk() {
        return Some(u64::from_be_bytes(*bytes));
    }
    if bytes.len() < width {
        return None;
    }
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    Some(u64::from_be_bytes(padded))
}

fn deeper(depth: usize) -> Result<usize, DocumentFault> {
    if depth < MOST_DEPTH {
        Ok(depth + 1)
    } else {
        Err(Malformed)
    }
}
