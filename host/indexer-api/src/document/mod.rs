//! A request body as a map of fields, whatever it was written in.
//!
//! Both readers are strict about form and lenient about content: what a field should be is judged by who asks for it.
//! Bounded: depth and the number of values are limited, and an array of integers, which prompts are, takes 8 bytes each.

mod json;
mod msgpack;

use std::borrow::Cow;

/// Deepest nesting; requests need 3.
const MOST_DEPTH: usize = 16;
/// Most values that are not integers of an array. Each takes 32 bytes.
const MOST_VALUES: usize = 1 << 20;

/// What a body is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Msgpack,
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Field<'b> {
    Nil,
    Bool,
    Int(i64),
    /// Above `i64::MAX`.
    Large(u64),
    Float(f64),
    Text(Cow<'b, str>),
    Bin(&'b [u8]),
    /// A list of nothing but integers that fit; the empty list too.
    Ints(Vec<i64>),
    List(Vec<Field<'b>>),
    Map(Document<'b>),
}

/// A map with text for keys, in the order written; a key may occur twice.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Document<'b> {
    pub(crate) fields: Vec<(Cow<'b, str>, Field<'b>)>,
}

impl<'b> Document<'b> {
    /// The first field of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&Field<'b>> {
        let named = self.fields.iter().find(|(key, _)| key == name);
        named.map(|(_, field)| field)
    }
}

/// Why a body is no document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentFault {
    /// It cannot be decoded, or is beyond the bounds.
    Malformed,
    /// Its root is something else than a map.
    NotAMap,
    /// Some map has a key that is no text.
    KeyNotText,
}

pub(crate) fn read(format: Format, body: &[u8]) -> Result<Document<'_>, DocumentFault> {
    match format {
        Format::Json => json::read(body),
        Format::Msgpack => msgpack::read(body),
    }
}

/// A list being read: integers for as long as there is nothing else.
#[derive(Debug)]
struct ListReader<'b> {
    ints: Vec<i64>,
    others: Vec<Field<'b>>,
}

impl<'b> ListReader<'b> {
    fn new(expected: usize) -> Self {
        Self {
            // What a list says of its length may be made up.
            ints: Vec::with_capacity(expected.min(1 << 16)),
            others: Vec::new(),
        }
    }

    /// The integers, while there is nothing else.
    fn only_ints(&mut self) -> Option<&mut Vec<i64>> {
        self.others.is_empty().then_some(&mut self.ints)
    }

    /// Whether there is room for it.
    #[inline]
    fn push_int(&mut self, number: i64, budget: &mut usize) -> bool {
        if self.others.is_empty() {
            self.ints.push(number);
            return true;
        }
        self.push(Field::Int(number), budget)
    }

    /// The same for something that may be no integer.
    #[cold]
    fn push(&mut self, field: Field<'b>, budget: &mut usize) -> bool {
        if let (Field::Int(number), true) = (&field, self.others.is_empty()) {
            self.ints.push(*number);
            return true;
        }
        let needed = 1 + self.ints.len();
        if *budget < needed {
            return false;
        }
        *budget -= needed;
        self.others.extend(self.ints.drain(..).map(Field::Int));
        self.others.push(field);
        true
    }

    fn end(self) -> Field<'b> {
        if self.others.is_empty() {
            Field::Ints(self.ints)
        } else {
            Field::List(self.others)
        }
    }
}

#[cfg(test)]
mod tests;
