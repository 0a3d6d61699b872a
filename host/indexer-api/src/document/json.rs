//! JSON (RFC 8259), strictly: one object and nothing after it.
//!
//! By hand, because of prompts: a list of integers is read three times as fast as through a general reader. Whatever is rare
//! (escapes, floats, large numbers) is left to `serde_json`.

use std::borrow::Cow;

use super::DocumentFault::{Malformed, NotAMap};
use super::{Document, DocumentFault, Field, ListReader, MOST_DEPTH, MOST_VALUES};

pub(super) fn read(body: &[u8]) -> Result<Document<'_>, DocumentFault> {
    let mut reader = Reader {
        rest: body,
        budget: MOST_VALUES,
    };
    let field = reader.value(0)?;
    reader.skip_space();
    match field {
        _ if !reader.rest.is_empty() => Err(Malformed),
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
    fn skip_space(&mut self) {
        while let [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Takes `byte` if it is next.
    #[inline]
    fn next_is(&mut self, byte: u8) -> bool {
        self.skip_space();
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn value(&mut self, depth: usize) -> Result<Field<'b>, DocumentFault> {
        self.skip_space();
        if let Some(number) = self.int() {
            return Ok(Field::Int(number));
        }
        match self.rest.first().ok_or(Malformed)? {
            b'{' => self.map(depth),
            b'[' => self.list(depth),
            b'"' => self.text().map(Field::Text),
            b'-' | b'0'..=b'9' => self.number(),
            b'n' => self.word(b"null", Field::Nil),
            b't' => self.word(b"true", Field::Bool),
            b'f' => self.word(b"false", Field::Bool),
            _ => Err(Malformed),
        }
    }

    fn word(&mut self, word: &[u8], field: Field<'b>) -> Result<Field<'b>, DocumentFault> {
        self.rest = self.rest.strip_prefix(word).ok_or(Malformed)?;
        Ok(field)
    }

    /// An integer of few digits, if that is next; nothing is taken otherwise.
    fn int(&mut self) -> Option<i64> {
        let (number, len) = short_int(self.rest)?;
        self.rest = &self.rest[len..];
        Some(number)
    }

    /// Integers for as long as there are, each with the comma after it.
    fn ints(&mut self, ints: &mut Vec<i64>) {
        let mut rest = self.rest;
        while let Some((number, len)) = short_int(rest)
            && let Some((b',', after)) = rest[len..].split_first()
        {
            ints.push(number);
            rest = match after {
                [b' ', after @ ..] => after,
                after => after,
            };
        }
        self.rest = rest;
    }

    /// Any other number.
    #[cold]
    fn number(&mut self) -> Result<Field<'b>, DocumentFault> {
        let part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let len = self.rest.iter().take_while(|byte| part(byte)).count();
        let (text, rest) = self.rest.split_at(len);
        self.rest = rest;
        let number: serde_json::Number = serde_json::from_slice(text).map_err(|_| Malformed)?;
        Ok(match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Field::Int(number),
            (None, Some(number)) => Field::Large(number),
            (None, None) => Field::Float(number.as_f64().ok_or(Malformed)?),
        })
    }

    /// A string, whose opening quote is next.
    fn text(&mut self) -> Result<Cow<'b, str>, DocumentFault> {
        let inner = self.rest.strip_prefix(b"\"").ok_or(Malformed)?;
        let mut len = 0;
        let mut plain = true;
        loop {
            match inner.get(len).ok_or(Malformed)? {
                b'"' => break,
                b'\\' => {
                    plain = false;
                    len += 2;
                }
                0..0x20 => return Err(Malformed),
                _ => len += 1,
            }
        }
        let quoted = &self.rest[..len + 2];
        self.rest = &inner[len + 1..];
        if plain {
            let text = std::str::from_utf8(&inner[..len]).map_err(|_| Malformed)?;
            return Ok(Cow::Borrowed(text));
        }
        serde_json::from_slice(quoted)
            .map(Cow::Owned)
            .map_err(|_| Malformed)
    }

    fn list(&mut self, depth: usize) -> Result<Field<'b>, DocumentFault> {
        let depth = deeper(depth)?;
        self.rest = &self.rest[1..];
        let mut list = ListReader::new(0);
        if self.next_is(b']') {
            return Ok(list.end());
        }
        loop {
            self.skip_space();
            if let Some(ints) = list.only_ints() {
                self.ints(ints);
            }
            let field = self.value(depth)?;
            if !list.push(field, &mut self.budget) {
                return Err(Malformed);
            }
            if !self.next_is(b',') {
                return if self.next_is(b']') {
                    Ok(list.end())
                } else {
                    Err(Malformed)
                };
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Field<'b>, DocumentFault> {
        let depth = deeper(depth)?;
        self.rest = &self.rest[1..];
        let mut document = Document::default();
        if self.next_is(b'}') {
            return Ok(Field::Map(document));
        }
        loop {
            self.budget = self.budget.checked_sub(1).ok_or(Malformed)?;
            self.skip_space();
            let key = self.text()?;
            if !self.next_is(b':') {
                return Err(Malformed);
            }
            document.fields.push((key, self.value(depth)?));
            if !self.next_is(b',') {
                return if self.next_is(b'}') {
                    Ok(Field::Map(document))
                } else {
                    Err(Malformed)
                };
            }
        }
    }
}

/// An integer of few digits and its length, if the text begins with one.
#[inline]
fn short_int(text: &[u8]) -> Option<(i64, usize)> {
    let negative = usize::from(text.first() == Some(&b'-'));
    let digits: &[u8; 8] = text.get(negative..)?.first_chunk()?;
    let (number, len) = leading_digits(*digits);
    // Further digits, a fraction, an exponent or a needless zero: not for here.
    let ends = len < 8 && !matches!(digits[len], b'.' | b'e' | b'E');
    if len == 0 || !ends || (len > 1 && digits[0] == b'0') {
        return None;
    }
    let number = number as i64;
    Some((if negative == 1 { -number } else { number }, negative + len))
}

/// The digits that eight bytes begin with, as a number, and how many they are. All eight at once: the lengths of tokens follow no
/// pattern, so a loop over digits would be mispredicted at every token's end.
#[inline]
fn leading_digits(bytes: [u8; 8]) -> (u64, usize) {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Digits become 0 to 9, everything else is above.
    let values = u64::from_le_bytes(bytes) ^ (EACH * 0x30);
    let above_nine = (values.wrapping_add(EACH * (0x80 - 10)) | values) & (EACH * 0x80);
    let len = (above_nine.trailing_zeros() / 8) as usize;
    if len == 0 {
        return (0, 0);
    }
    // Zeroes before the first digit, then pairs, fours and eights.
    let values = values << (64 - 8 * len);
    let pairs = (values.wrapping_mul(10 * 0x100 + 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100 * 0x1_0000 + 1) >> 16) & 0x0000_ffff_0000_ffff;
    let eight = fours.wrapping_mul(10_000 * 0x1_0000_0000 + 1) >> 32;
    (eight, len)
}

fn deeper(depth: usize) -> Result<usize, DocumentFault> {
    if depth < MOST_DEPTH {
        Ok(depth + 1)
    } else {
        Err(Malformed)
    }
}
