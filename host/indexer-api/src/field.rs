//! Typed access to fields, with upstream's error messages.

use crate::document::{Document, Field, Format};
use crate::refusal::{Reason, Refusal};

/// Longest name of an instance or tenant, in bytes: it becomes a metrics label.
const LONGEST_NAME: usize = 128;
/// Longest other registered text, in bytes: a model's name may be a path.
const LONGEST_TEXT: usize = 512;

type FieldResult<T> = Result<T, Refusal>;

pub(crate) fn text<'f>(name: &str, field: &'f Field<'_>) -> FieldResult<&'f str> {
    match field {
        Field::Text(text) => Ok(text),
        _ => Err(Refusal::bad(
            Reason::InvalidType,
            name,
            format!("{name} must be a string"),
        )),
    }
}

pub(crate) fn filled_text<'f>(name: &str, field: &'f Field<'_>) -> FieldResult<&'f str> {
    let text = text(name, field)?;
    if text.is_empty() {
        return Err(Refusal::bad(
            Reason::InvalidValue,
            name,
            format!("{name} must not be empty"),
        ));
    }
    Ok(text)
}

/// Returns the text of a required field that must not be empty.
pub(crate) fn required_text<'f>(document: &'f Document<'_>, name: &str) -> FieldResult<&'f str> {
    filled_text(name, document.get(name).ok_or_else(|| Refusal::missing(name))?)
}

/// Returns the text of an optional field; empty if absent. Nil is refused.
pub(crate) fn optional_text<'f>(document: &'f Document<'_>, name: &str) -> FieldResult<&'f str> {
    document.get(name).map_or(Ok(""), |field| text(name, field))
}

/// Checks that a text can be a name: short, and without control characters.
pub(crate) fn as_name<'t>(name: &str, text: &'t str) -> FieldResult<&'t str> {
    bounded(name, text, LONGEST_NAME)
}

/// Checks that a text is short enough and has no control characters.
pub(crate) fn as_text<'t>(name: &str, text: &'t str) -> FieldResult<&'t str> {
    bounded(name, text, LONGEST_TEXT)
}

fn bounded<'t>(name: &str, text: &'t str, most: usize) -> FieldResult<&'t str> {
    if text.len() > most {
        let error = format!("{name} must not be longer than {most} bytes");
        return Err(Refusal::bad(Reason::TooLong, name, error));
    }
    if text.chars().any(char::is_control) {
        let error = format!("{name} must not contain control characters");
        return Err(Refusal::bad(Reason::InvalidValue, name, error));
    }
    Ok(text)
}

pub(crate) fn int(name: &str, field: &Field<'_>) -> FieldResult<i64> {
    match field {
        Field::Int(number) => Ok(*number),
        _ => Err(Refusal::bad(
            Reason::InvalidType,
            name,
            format!("{name} must be an integer"),
        )),
    }
}

/// Reads a block size above 0. `message` is upstream's error text, which differs between routes.
pub(crate) fn block_size(field: &Field<'_>, message: &str) -> FieldResult<u32> {
    let name = "block_size";
    let size = int(name, field)?;
    if size <= 0 {
        return Err(Refusal::bad(Reason::OutOfRange, name, message));
    }
    u32::try_from(size).map_err(|_| Refusal::bad(Reason::OutOfRange, name, format!("{name} is too large")))
}

/// Returns the tenant, or the default one if it is empty.
pub(crate) fn or_default(tenant: &str) -> &str {
    if tenant.is_empty() { "default" } else { tenant }
}

/// Reads a prompt: signed 32-bit integers as an array or, in MessagePack, as little-endian bytes.
pub(crate) fn tokens(format: Format, field: &Field<'_>) -> FieldResult<Vec<u32>> {
    let name = "token_ids";
    match field {
        Field::Bin(bytes) => {
            let (tokens, rest) = bytes.as_chunks();
            if !rest.is_empty() {
                let error = format!("{name} bin size must be a multiple of 4");
                return Err(Refusal::bad(Reason::InvalidValue, name, error));
            }
            Ok(tokens.iter().map(|token| u32::from_le_bytes(*token)).collect())
        }
        Field::Ints(numbers) => {
            let is_outside = |number: &i64| i32::try_from(*number).is_err();
            match numbers.iter().position(is_outside) {
                Some(index) => Err(outside(name, "int32").at(index)),
                None => Ok(numbers.iter().map(|&number| number as u32).collect()),
            }
        }
        // Some element is not an integer that fits. The error reports the first one.
        Field::List(elements) => {
            for (index, element) in elements.iter().enumerate() {
                match element {
                    Field::Int(number) if i32::try_from(*number).is_ok() => {}
                    Field::Int(_) => return Err(outside(name, "int32").at(index)),
                    _ => return Err(not_an_int(format, name).at(index)),
                }
            }
            Err(not_an_int(format, name))
        }
        _ => Err(no_list(format, name)),
    }
}

/// Reads block hashes: 64 bits, signed or unsigned.
pub(crate) fn hashes(format: Format, name: &str, field: &Field<'_>) -> FieldResult<Vec<u64>> {
    match field {
        Field::Bin(bytes) => {
            let (hashes, rest) = bytes.as_chunks();
            if !rest.is_empty() {
                let error = format!("{name} bin size must be a multiple of 8");
                return Err(Refusal::bad(Reason::InvalidValue, name, error));
            }
            Ok(hashes.iter().map(|hash| u64::from_le_bytes(*hash)).collect())
        }
        Field::Ints(numbers) => Ok(numbers.iter().map(|number| *number as u64).collect()),
        Field::List(elements) => {
            let hash = |(index, element): (usize, &Field<'_>)| match element {
                Field::Int(number) => Ok(*number as u64),
                Field::Large(number) => Ok(*number),
                _ => Err(not_an_int(format, name).at(index)),
            };
            elements.iter().enumerate().map(hash).collect()
        }
        _ => Err(no_list(format, name)),
    }
}

fn outside(name: &str, range: &str) -> Refusal {
    Refusal::bad(
        Reason::OutOfRange,
        name,
        format!("{name} element is outside the {range} range"),
    )
}

fn not_an_int(format: Format, name: &str) -> Refusal {
    let kind = match format {
        Format::Json => "a JSON integer",
        Format::Msgpack => "an integer",
    };
    Refusal::bad(
        Reason::InvalidType,
        name,
        format!("{name} element must be {kind}"),
    )
}

fn no_list(format: Format, name: &str) -> Refusal {
    match format {
        Format::Json => Refusal::bad(Reason::NotArray, name, format!("{name} must be an array")),
        Format::Msgpack => Refusal::bad(
            Reason::InvalidType,
            name,
            format!("{name} must be a bin or an array"),
        ),
    }
}
