//! JSON as in Python's `json` module, for the template engine's values: the order of keys is kept, and numbers have
//! Python's form.

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, Value, ValueKind};
use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use thiserror::Error;

use crate::long_integer;

/// Longest rendered text, and longest value in it, in bytes: about four million tokens.
pub(crate) const LONGEST_TEXT: usize = 16 << 20;

/// Parses JSON; of a repeated key the later value counts.
pub(crate) fn parse(json: &str) -> Result<Value, serde_json::Error> {
    read::<Read>(json).map(|read| read.0)
}

/// Reads JSON with values in it. Integers of more than 64 bits are an error: they lose digits.
pub(crate) fn read<T: DeserializeOwned>(json: &str) -> Result<T, serde_json::Error> {
    HAS_LARGE.set(false);
    let read = serde_json::from_str(json)?;
    match HAS_LARGE.get() && long_integer::is_in(json) {
        true => Err(de::Error::custom("an integer has more than 64 bits")),
        false => Ok(read),
    }
}

thread_local! {
    /// Set by a float that may be an integer of the JSON.
    static HAS_LARGE: Cell<bool> = const { Cell::new(false) };
}

/// Least absolute value of integers that are read as floats.
const LEAST_LARGE: f64 = (1_u64 << 63) as f64;

/// JSON value in deserialization.
pub(crate) struct Read(pub(crate) Value);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReadVisitor).map(Self)
    }
}

struct ReadVisitor;

impl<'de> Visitor<'de> for ReadVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::from(()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        if value.abs() >= LEAST_LARGE {
            HAS_LARGE.set(true);
        }
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Read(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::from(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries: Vec<(Value, Value)> = Vec::new();
        while let Some((Read(key), Read(value))) = map.next_entry()? {
            entries.push((key, value));
        }
        Ok(self::map(entries))
    }
}

/// Returns a dictionary in the order of its entries; of a repeated key the later value counts.
pub(crate) fn map(entries: Vec<(Value, Value)>) -> Value {
    let is_new =
        |(at, (key, _)): (usize, &(Value, Value))| entries[..at].iter().all(|(other, _)| other != key);
    if entries.len() <= FEW && entries.iter().enumerate().all(is_new) {
        return Value::from_object(SmallMap(entries));
    }
    Value::from_pairs(entries)
}

/// Up to this many entries a linear search is faster than a hash.
const FEW: usize = 12;

/// A small dictionary, such as a message.
#[derive(Debug)]
struct SmallMap(Vec<(Value, Value)>);

impl Object for SmallMap {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let found = match key.as_str() {
            Some(name) => self.0.iter().find(|(key, _)| key.as_str() == Some(name)),
            None => self.0.iter().find(|(other, _)| other == key),
        };
        found.map(|(_, value)| value.clone())
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let found = self.0.iter().find(|(other, _)| other.as_str() == Some(key));
        found.map(|(_, value)| value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.iter().map(|(key, _)| key.clone()).collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.len())
    }
}

/// Returns a small dictionary with known, distinct keys.
pub(crate) fn named(entries: Vec<(&'static str, Value)>) -> Value {
    Value::from_object(NamedMap(entries))
}

#[derive(Debug)]
struct NamedMap(Vec<(&'static str, Value)>);

impl Object for NamedMap {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let found = self.0.iter().find(|(other, _)| *other == key);
        found.map(|(_, value)| value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.iter().map(|(key, _)| Value::from(*key)).collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.len())
    }
}

/// Layout of `json.dumps`.
#[derive(Debug)]
pub(crate) struct JsonStyle {
    pub(crate) ascii: bool,
    pub(crate) indent: Option<String>,
    pub(crate) item_separator: String,
    pub(crate) key_separator: String,
    pub(crate) sort_keys: bool,
}

/// A value has no JSON form.
#[derive(Debug, Error)]
pub(crate) enum JsonError {
    #[error("this value has no JSON form")]
    NoForm,
    #[error("this value is too long as JSON")]
    TooLong,
}

/// A value's printed form is not that of Python, such as that of an iterator.
#[derive(Debug, Error)]
#[error("this value has no printed form here")]
pub(crate) struct NoPrintedForm;

/// Returns `json.dumps(value)`.
pub(crate) fn to_json(value: &Value, style: &JsonStyle) -> Result<String, JsonError> {
    let mut out = String::new();
    write_json(&mut out, value, style, 0)?;
    Ok(out)
}

fn write_json(out: &mut String, value: &Value, style: &JsonStyle, depth: usize) -> Result<(), JsonError> {
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => json_text(out, value.as_str().ok_or(JsonError::NoForm)?, style.ascii),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter().map_err(|_| JsonError::NoForm)?.collect();
            write_container(out, style, depth, '[', ']', &items, |out, item| {
                write_json(out, item, style, depth + 1)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter().map_err(|_| JsonError::NoForm)?.collect();
            if style.sort_keys {
                keys.sort();
            }
            write_container(out, style, depth, '{', '}', &keys, |out, key| {
                match key.as_str() {
                    Some(key) => json_text(out, key, style.ascii),
                    // JSON keys are text: `json.dumps` writes `{1: 2}` as `{"1": 2}`.
                    None => {
                        let mut name = String::new();
                        write_json(&mut name, key, style, depth)?;
                        json_text(out, &name, style.ascii);
                    }
                }
                out.push_str(&style.key_separator);
                let item = value.get_item(key).map_err(|_| JsonError::NoForm)?;
                write_json(out, &item, style, depth + 1)
            })?;
        }
        _ => return Err(JsonError::NoForm),
    }
    Ok(())
}

fn write_container(
    out: &mut String,
    style: &JsonStyle,
    depth: usize,
    open: char,
    close: char,
    items: &[Value],
    mut each: impl FnMut(&mut String, &Value) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    out.push(open);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push_str(&style.item_separator);
        }
        new_line(out, style, depth + 1);
        each(out, item)?;
        // Indentation can enlarge the output.
        if out.len() > LONGEST_TEXT {
            return Err(JsonError::TooLong);
        }
    }
    if !items.is_empty() {
        new_line(out, style, depth);
    }
    out.push(close);
    Ok(())
}

fn new_line(out: &mut String, style: &JsonStyle, depth: usize) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn json_text(out: &mut String, text: &str, ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (ascii && c > '~') => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}").expect("text takes everything");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Formats an integer unchanged, and a float as Python's `repr`: the shortest digits, an exponent below 1e-4 and from
/// 1e16.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(number) = f64::try_from(value.clone()) else {
        return value.to_string();
    };
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    // The debug form has the shortest digits too, and always a decimal point.
    format!("{number:?}")
}

/// Writes `str(value)`, the printed form.
pub(crate) fn to_text(out: &mut String, value: &Value) -> Result<(), NoPrintedForm> {
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => write_repr(out, value)?,
    }
    Ok(())
}

/// Writes `repr(value)`.
fn write_repr(out: &mut String, value: &Value) -> Result<(), NoPrintedForm> {
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&match number(value) {
            text if text == "NaN" => "nan".to_owned(),
            text => text.replace("Infinity", "inf"),
        }),
        ValueKind::String => quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq => {
            let [open, close] = if value.is_tuple() { ["(", ")"] } else { ["[", "]"] };
            out.push_str(open);
            for (at, item) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_repr(out, &item)?;
            }
            out.push_str(if value.is_tuple() && value.len() == Some(1) {
                ","
            } else {
                ""
            });
            out.push_str(close);
        }
        ValueKind::Map => {
            out.push('{');
            for (at, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_repr(out, &key)?;
                out.push_str(": ");
                write_repr(out, &value.get_item(&key).unwrap_or_default())?;
            }
            out.push('}');
        }
        _ => return Err(NoPrintedForm),
    }
    Ok(())
}

fn quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c < ' ' || c == '\u{7f}' => {
                write!(out, "\\x{:02x}", u32::from(c)).expect("text takes everything");
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style() -> JsonStyle {
        JsonStyle {
            ascii: false,
            indent: None,
            item_separator: ", ".to_owned(),
            key_separator: ": ".to_owned(),
            sort_keys: false,
        }
    }

    #[track_caller]
    fn check(json: &str, dumped: &str, printed: &str) {
        let value = parse(json).unwrap();
        assert_eq!(to_json(&value, &style()).unwrap(), dumped);
        let mut out = String::new();
        to_text(&mut out, &value).unwrap();
        assert_eq!(out, printed);
    }

    #[test]
    fn values_look_as_in_python() {
        check("null", "null", "None");
        check("[true,false]", "[true, false]", "[True, False]");
        check(
            r#"{"b":1,"a":[],"c":{}}"#,
            r#"{"b": 1, "a": [], "c": {}}"#,
            "{'b': 1, 'a': [], 'c': {}}",
        );
        check(r#""é\"\n""#, r#""é\"\n""#, "é\"\n");
        check(r#"["it's","a\\"]"#, r#"["it's", "a\\"]"#, r#"["it's", 'a\\']"#);
        check(
            r#"{"k":1,"j":2,"k":3}"#,
            r#"{"k": 3, "j": 2}"#,
            "{'k': 3, 'j': 2}",
        );
    }

    #[test]
    fn floats_look_as_in_python() {
        for (json, text) in [
            ("1.0", "1.0"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("1e16", "1e+16"),
            ("123456789012345.0", "123456789012345.0"),
            ("1.5e300", "1.5e+300"),
            ("-0.0", "-0.0"),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            check(json, text, text);
        }
    }

    #[test]
    fn dumps_takes_indents_and_ascii() {
        let value = parse(r#"{"b":[1,"é😀"],"a":{}}"#).unwrap();
        let indented = JsonStyle {
            indent: Some("  ".to_owned()),
            item_separator: ",".to_owned(),
            sort_keys: true,
            ascii: true,
            ..style()
        };
        let expected = "{\n  \"a\": {},\n  \"b\": [\n    1,\n    \"\\u00e9\\ud83d\\ude00\"\n  ]\n}";
        assert_eq!(to_json(&value, &indented).unwrap(), expected);
    }
}
