//! Fast reader of JSON object members, in one pass: copies nothing, and skips strings sixteen or more bytes at a time.
//!
//! It accepts only JSON as in RFC 8259. Some valid bodies are refused (a name with an escape, more than 128 nested
//! brackets): then `serde_json` reads the body, which also has better error messages.

use std::ops::Range;

use memchr::{memchr, memchr2};

/// Deepest nesting: one bit per bracket.
const DEEPEST: u32 = 128;

/// A member of an object.
pub(crate) struct Member<'a, 'r> {
    /// Name without quotes.
    pub(crate) name: &'a [u8],
    /// Raw value.
    pub(crate) value: &'a [u8],
    /// Elements of the value if it is the list with the requested name, as positions in the value. They may be taken.
    pub(crate) elements: &'r mut Vec<Range<usize>>,
}

/// Calls `member` for each member of an object. Also finds the elements of the lists that have the name `list`. Returns
/// the nesting depth including the object, or `None` if `member` does or the bytes are not accepted.
pub(crate) fn read<'a>(
    json: &'a [u8],
    list: &[u8],
    mut member: impl FnMut(Member<'a, '_>) -> Option<()>,
) -> Option<usize> {
    let mut reader = ObjectReader::of(json);
    let mut elements = Vec::new();
    reader.expect(b'{')?;
    if !reader.skip_if(b'}') {
        loop {
            let name = reader.name()?;
            if name.contains(&b'\\') {
                return None;
            }
            reader.skip_space();
            let start = reader.at;
            elements.clear();
            if name == list && reader.peek() == Some(b'[') {
                reader.list(&mut elements)?;
            } else {
                reader.value()?;
            }
            member(Member {
                name,
                value: &json[start..reader.at],
                elements: &mut elements,
            })?;
            if reader.skip_if(b'}') {
                break;
            }
            reader.expect(b',')?;
        }
    }
    reader.skip_space();
    (reader.at == json.len()).then_some(1 + reader.deepest as usize)
}

/// Returns the positions of the elements of a JSON list. `None` if the text is no list, or is not accepted.
#[must_use]
pub fn list_elements(json: &str) -> Option<Vec<Range<usize>>> {
    let mut reader = ObjectReader::of(json.as_bytes());
    let mut elements = Vec::new();
    if reader.peek() != Some(b'[') {
        return None;
    }
    reader.list(&mut elements)?;
    (reader.at == json.len()).then_some(elements)
}

struct ObjectReader<'a> {
    json: &'a [u8],
    at: usize,
    /// Nesting of the list that is read element by element, if there is one.
    outer: u32,
    /// Deepest nesting of a value of the object.
    deepest: u32,
    /// Position before which no array ends with plain integers alone. Each array is tried once.
    no_integers_before: usize,
}

/// Open brackets, the innermost in the lowest bit: set for an object.
#[derive(Default)]
struct OpenBrackets {
    kinds: u128,
    depth: u32,
}

impl OpenBrackets {
    fn push(&mut self, is_object: bool) {
        self.kinds = self.kinds << 1 | u128::from(is_object);
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.kinds >>= 1;
        self.depth -= 1;
    }

    fn is_object(&self) -> bool {
        self.kinds & 1 == 1
    }
}

impl<'a> ObjectReader<'a> {
    fn of(json: &'a [u8]) -> Self {
        Self {
            json,
            at: 0,
            outer: 0,
            deepest: 0,
            no_integers_before: 0,
        }
    }

    /// Skips a list whose bracket is next, and adds the positions of its elements after that bracket.
    fn list(&mut self, elements: &mut Vec<Range<usize>>) -> Option<()> {
        let start = self.at;
        self.at += 1;
        self.outer = 1;
        self.deepest = self.deepest.max(1);
        if !self.skip_if(b']') {
            loop {
                self.skip_space();
                let from = self.at - start;
                self.value()?;
                elements.push(from..self.at - start);
                if self.skip_if(b']') {
                    break;
                }
                self.expect(b',')?;
            }
        }
        self.outer = 0;
        Some(())
    }

    /// Opens a bracket.
    fn open(&mut self, open: &mut OpenBrackets, is_object: bool) -> Option<()> {
        open.push(is_object);
        let depth = self.outer + open.depth;
        self.deepest = self.deepest.max(depth);
        (depth <= DEEPEST).then_some(())
    }

    fn next(&mut self) -> Option<u8> {
        let byte = *self.json.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn peek(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Skips space, and the byte if it is next. Returns `true` if it was.
    fn skip_if(&mut self, byte: u8) -> bool {
        self.skip_space();
        let comes = self.peek() == Some(byte);
        self.at += usize::from(comes);
        comes
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip_if(byte).then_some(())
    }

    /// Reads a member's name and its colon.
    fn name(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let name = self.string()?;
        self.expect(b':')?;
        Some(name)
    }

    /// Skips a value. It must not begin with space.
    fn value(&mut self) -> Option<()> {
        let mut open = OpenBrackets::default();
        loop {
            match self.next()? {
                b'"' => drop(self.string()?),
                b'{' => {
                    self.open(&mut open, true)?;
                    if !self.skip_if(b'}') {
                        self.name()?;
                        self.skip_space();
                        continue;
                    }
                    open.pop();
                }
                b'[' => {
                    self.open(&mut open, false)?;
                    if !self.skip_if(b']') {
                        continue;
                    }
                    open.pop();
                }
                b't' => self.word(b"rue")?,
                b'f' => self.word(b"alse")?,
                b'n' => self.word(b"ull")?,
                b'-' => {
                    let first = self.next()?;
                    self.number(first)?;
                }
                first => {
                    self.number(first)?;
                    if open.depth > 0 && !open.is_object() && self.at >= self.no_integers_before {
                        self.skip_integers();
                    }
                }
            }
            if !self.closes_and_continues(&mut open)? {
                return Some(());
            }
        }
    }

    /// Closes the brackets that end after a value. Returns `true` if another value follows.
    fn closes_and_continues(&mut self, open: &mut OpenBrackets) -> Option<bool> {
        while open.depth > 0 {
            self.skip_space();
            match (self.next()?, open.is_object()) {
                (b',', is_object) => {
                    if is_object {
                        self.name()?;
                    }
                    self.skip_space();
                    return Some(true);
                }
                (b'}', true) | (b']', false) => open.pop(),
                _ => return None,
            }
        }
        Some(false)
    }

    /// Returns the text of a string whose first quote was read.
    fn string(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        loop {
            let rest = &self.json[self.at..];
            let found = memchr2(b'"', b'\\', rest)?;
            self.at += found + 1;
            if rest[found] == b'"' {
                break;
            }
            self.escape()?;
        }
        let text = &self.json[start..self.at - 1];
        // The minimum is computed sixteen bytes at a time; a search for the first control character is not.
        let least = text.iter().fold(u8::MAX, |least, &byte| least.min(byte));
        (least >= b' ').then_some(text)
    }

    /// Skips the rest of an escape after its backslash.
    fn escape(&mut self) -> Option<()> {
        match self.next()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => {
                let digits = self.json.get(self.at..self.at + 4)?;
                self.at += 4;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())
            }
            _ => None,
        }
    }

    fn word(&mut self, rest: &[u8]) -> Option<()> {
        let follows = self.json[self.at..].starts_with(rest);
        self.at += rest.len();
        follows.then_some(())
    }

    /// Skips a number whose first digit was read.
    fn number(&mut self, first: u8) -> Option<()> {
        match first {
            b'0' => {}
            b'1'..=b'9' => self.skip_digits(),
            _ => return None,
        }
        // A digit after a zero is refused too: only a comma, a bracket or the end can follow.
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// After a number in an array, skips the rest of the array if it has only plain integers, such as the ids of a
    /// prompt. Its bracket is left.
    fn skip_integers(&mut self) {
        let Some(end) = memchr(b']', &self.json[self.at..]).map(|end| self.at + end) else {
            return;
        };
        // With a byte before and two behind. At the end of the text the array is read one by one.
        match self.json.get(self.at - 1..end + 2) {
            Some(around) if !around[1].is_ascii_digit() && are_integers(around) => self.at = end,
            _ => self.no_integers_before = end,
        }
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        self.skip_digits();
        (self.at > start).then_some(())
    }

    fn skip_digits(&mut self) {
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
    }
}

/// Returns `true` if all bytes belong to a list of plain integers, each behind a comma, or a comma and a space. The
/// first byte and the last two are their neighbours: a digit, a bracket and any byte.
///
/// Each byte is only compared with its neighbours, so that the processor does sixteen or more at a time. An integer may
/// not begin with a zero.
fn are_integers(around: &[u8]) -> bool {
    let digit = |byte: u8| u8::from(byte.wrapping_sub(b'0') < 10);
    let behind = |by: usize| around.get(by..).unwrap_or_default().iter().copied();
    let neighbours = behind(0).zip(behind(1)).zip(behind(2)).zip(behind(3));
    let mut refused = 0;
    for (((before, byte), next), after) in neighbours {
        let (is_comma, is_space) = (u8::from(byte == b','), u8::from(byte == b' '));
        let starts = digit(next) | (u8::from(next == b' ') & digit(after));
        refused |= 1 ^ (digit(byte) | is_comma | is_space);
        refused |= is_comma & (1 ^ (digit(before) & starts));
        refused |= is_space & (1 ^ (u8::from(before == b',') & digit(next)));
        refused |= u8::from(byte == b'0') & (1 ^ digit(before)) & digit(next);
    }
    refused == 0
}

#[cfg(test)]
#[path = "object_tests.rs"]
mod tests;
