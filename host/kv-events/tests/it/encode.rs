//! A little MessagePack writer for fixtures: `rmp`'s own encoders behind a value tree.

use rmp::encode as rmp;

/// Value in a fixture.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Nil,
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
    /// Bytes under the marker of text, as encoders write them that know no binary type.
    RawText(Vec<u8>),
    Bin(Vec<u8>),
    Array(Vec<Value>),
    Map(Vec<(String, Value)>),
    /// A map whose keys need not be text.
    Pairs(Vec<(Value, Value)>),
}

pub(crate) fn nil() -> Value {
    Value::Nil
}

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

pub(crate) fn bin(bytes: &[u8]) -> Value {
    Value::Bin(bytes.to_vec())
}

pub(crate) fn ints(numbers: &[i64]) -> Value {
    array(numbers.iter().copied().map(Value::Int))
}

pub(crate) fn array(items: impl IntoIterator<Item = Value>) -> Value {
    Value::Array(items.into_iter().collect())
}

pub(crate) fn map<'a>(pairs: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Map(
        pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}

pub(crate) fn encode(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Nil => rmp::write_nil(out).unwrap(),
        Value::Int(number) => drop(rmp::write_sint(out, *number).unwrap()),
        Value::Uint(number) => drop(rmp::write_uint(out, *number).unwrap()),
        Value::Float(number) => rmp::write_f64(out, *number).unwrap(),
        Value::Text(text) => rmp::write_str(out, text).unwrap(),
        Value::RawText(bytes) => {
            rmp::write_str_len(out, u32::try_from(bytes.len()).unwrap()).unwrap();
            out.extend(bytes);
        }
        Value::Bin(bytes) => rmp::write_bin(out, bytes).unwrap(),
        Value::Array(items) => {
            rmp::write_array_len(out, u32::try_from(items.len()).unwrap()).unwrap();
            items.iter().for_each(|item| write(item, out));
        }
        Value::Map(pairs) => {
            rmp::write_map_len(out, u32::try_from(pairs.len()).unwrap()).unwrap();
            for (name, item) in pairs {
                rmp::write_str(out, name).unwrap();
                write(item, out);
            }
        }
        Value::Pairs(pairs) => {
            rmp::write_map_len(out, u32::try_from(pairs.len()).unwrap()).unwrap();
            for (key, item) in pairs {
                write(key, out);
                write(item, out);
            }
        }
    }
}
