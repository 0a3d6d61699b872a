//! Request document: a body in JSON or MessagePack as a map of fields.
//!
//! `serde_json` and `rmp-serde` parse the bytes; `visitor` builds the fields within fixed bounds. Parsing is strict
//! about form and lenient about content: the type of a field is checked by the code that reads the field.

mod visitor;

use std::borrow::Cow;

use serde::de::DeserializeSeed;

use visitor::{DocumentBounds, FieldSeed};

/// Deepest nesting; requests need 3.
const MAX_DEPTH: usize = 16;
/// Most values that are not integers of an integer list. Each takes 32 bytes.
const MAX_VALUES: usize = 1 << 20;

/// Serialization format of a body.
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
    /// An integer above `i64::MAX`.
    Large(u64),
    Float(f64),
    Text(Cow<'b, str>),
    /// Bytes of MessagePack, and its strings that are not UTF-8.
    Bin(Cow<'b, [u8]>),
    /// A list of integers that fit, 8 bytes each; also the empty list.
    Ints(Vec<i64>),
    List(Vec<Field<'b>>),
    Map(Document<'b>),
}

/// A map with string keys, in the order written. A key may occur twice.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Document<'b> {
    pub(crate) fields: Vec<(Cow<'b, str>, Field<'b>)>,
}

impl<'b> Document<'b> {
    /// Returns the first field with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Field<'b>> {
        let named = self.fields.iter().find(|(key, _)| key == name);
        named.map(|(_, field)| field)
    }
}

/// Reason why a body is not a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentFault {
    /// The body cannot be decoded, or exceeds the bounds.
    Malformed,
    /// The root is not a map.
    NotAMap,
    /// A map has a key that is not a string.
    KeyNotText,
    /// The lists have more integers than this together.
    TooManyInts(usize),
}

/// Parses a body with at most `most_ints` integers in its lists. Bytes after a MessagePack map are ignored, as upstream
/// ignores them.
pub(crate) fn read(format: Format, body: &[u8], most_ints: usize) -> Result<Document<'_>, DocumentFault> {
    let bounds = DocumentBounds::new(MAX_VALUES, most_ints, MAX_DEPTH);
    let root = FieldSeed::new(&bounds);
    let field = match format {
        Format::Json => {
            let mut json = serde_json::Deserializer::from_slice(body);
            let field = root.deserialize(&mut json).ok();
            field.filter(|_| json.end().is_ok())
        }
        Format::Msgpack => root
            .deserialize(&mut rmp_serde::Deserializer::from_read_ref(body))
            .ok(),
    };
    match field.ok_or_else(|| bounds.fault())? {
        Field::Map(document) => Ok(document),
        _ => Err(DocumentFault::NotAMap),
    }
}

#[cfg(test)]
mod tests;
