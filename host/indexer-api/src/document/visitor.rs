//! Serde visitor that builds fields of any type within bounds on depth and number of values.
//!
//! The bounds hold while the body is parsed, so that a small body cannot make the process allocate a large document.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use super::{Document, DocumentFault, Field};

/// Most list elements to allocate for before they are parsed: the length that MessagePack announces may be false.
const MAX_PREALLOCATED: usize = 1024;

/// Limits of one document, shared by the seeds of all its values.
pub(super) struct DocumentBounds {
    values_left: Cell<usize>,
    ints_left: Cell<usize>,
    max_ints: usize,
    max_depth: usize,
    fault: Cell<DocumentFault>,
}

impl DocumentBounds {
    pub(super) fn new(max_values: usize, max_ints: usize, max_depth: usize) -> Self {
        Self {
            values_left: Cell::new(max_values),
            ints_left: Cell::new(max_ints),
            max_ints,
            max_depth,
            fault: Cell::new(DocumentFault::Malformed),
        }
    }

    /// Returns the reason why parsing failed.
    pub(super) fn fault(&self) -> DocumentFault {
        self.fault.get()
    }

    fn spend<E: Error>(&self, values: usize) -> Result<(), E> {
        let left = self.values_left.get().checked_sub(values);
        self.values_left
            .set(left.ok_or_else(|| E::custom("too many values"))?);
        Ok(())
    }

    /// Counts an integer of a list. A byte of MessagePack can be one, and it takes 8 bytes.
    fn spend_int<E: Error>(&self) -> Result<(), E> {
        let Some(left) = self.ints_left.get().checked_sub(1) else {
            self.fault.set(DocumentFault::TooManyInts(self.max_ints));
            return Err(E::custom("too many integers"));
        };
        self.ints_left.set(left);
        Ok(())
    }
}

/// Seed of one value at a depth of the document.
#[derive(Clone, Copy)]
pub(super) struct FieldSeed<'a> {
    bounds: &'a DocumentBounds,
    depth: usize,
}

impl<'a> FieldSeed<'a> {
    /// Returns the seed of the root.
    pub(super) fn new(bounds: &'a DocumentBounds) -> Self {
        Self { bounds, depth: 0 }
    }

    fn nested<E: Error>(self) -> Result<Self, E> {
        if self.depth >= self.bounds.max_depth {
            return Err(E::custom("nested too deeply"));
        }
        Ok(Self {
            depth: self.depth + 1,
            ..self
        })
    }
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = Field<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldSeed<'_> {
    type Value = Field<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Field<'de>, E> {
        Ok(Field::Nil)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Field<'de>, E> {
        Ok(Field::Bool)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Field<'de>, E> {
        Ok(Field::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Field<'de>, E> {
        Ok(i64::try_from(number).map_or(Field::Large(number), Field::Int))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Field<'de>, E> {
        Ok(Field::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Field<'de>, E> {
        Ok(Field::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Field<'de>, E> {
        Ok(Field::Text(Cow::Borrowed(text)))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Field<'de>, E> {
        Ok(Field::Bin(Cow::Owned(bytes.to_owned())))
    }

    fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Field<'de>, E> {
        Ok(Field::Bin(Cow::Borrowed(bytes)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Field<'de>, A::Error> {
        let seed = self.nested()?;
        let announced = list.size_hint().unwrap_or(0);
        let mut ints = Vec::with_capacity(announced.min(MAX_PREALLOCATED));
        while let Some(field) = list.next_element_seed(seed)? {
            match field {
                Field::Int(number) => {
                    self.bounds.spend_int()?;
                    ints.push(number);
                }
                other => return mixed_list(seed, ints, other, list),
            }
        }
        Ok(Field::Ints(ints))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Field<'de>, A::Error> {
        let seed = self.nested()?;
        let mut document = Document::default();
        while let Some(key) = map.next_key_seed(seed)? {
            self.bounds.spend(1)?;
            let Field::Text(key) = key else {
                self.bounds.fault.set(key_fault(&key));
                return Err(A::Error::custom("a key is not a string"));
            };
            document.fields.push((key, map.next_value_seed(seed)?));
        }
        Ok(Field::Map(document))
    }
}

/// Reads the rest of a list in which not every element is an integer.
#[cold]
fn mixed_list<'de, A: SeqAccess<'de>>(
    seed: FieldSeed<'_>,
    ints: Vec<i64>,
    other: Field<'de>,
    mut list: A,
) -> Result<Field<'de>, A::Error> {
    seed.bounds.spend(ints.len() + 1)?;
    let mut fields: Vec<_> = ints.into_iter().map(Field::Int).collect();
    fields.push(other);
    while let Some(field) = list.next_element_seed(seed)? {
        seed.bounds.spend(1)?;
        fields.push(field);
    }
    Ok(Field::List(fields))
}

/// Returns the fault of a key that is not a string. A string that is not UTF-8 arrives as bytes.
fn key_fault(key: &Field<'_>) -> DocumentFault {
    match key {
        Field::Bin(bytes) if std::str::from_utf8(bytes).is_err() => DocumentFault::Malformed,
        _ => DocumentFault::KeyNotText,
    }
}
