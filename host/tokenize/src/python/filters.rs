//! Filters and tests of Jinja2.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, filters};

use super::strip;
use crate::costs;
use crate::value::{self, JsonStyle};

pub(super) fn register(environment: &mut Environment<'_>) {
    costs::add_charged(environment, "replace", replace);
    costs::add_charged(environment, "string", |value: &Value| text(value));
    costs::add_charged(environment, "tojson", tojson);
    costs::add_charged(environment, "trim", trim);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    // In Python text is a sequence too, and a dictionary has the attributes that Jinja tests.
    environment.add_test("sequence", |value: &Value| {
        use ValueKind::{Map, Seq, String, Undefined};
        matches!(value.kind(), Seq | String | Map | Undefined)
    });
    // minijinja iterates over none and over undefined values, Jinja2 only over the latter.
    environment.add_test("iterable", |value: &Value| {
        value.kind() == ValueKind::String || (!value.is_none() && value.try_iter().is_ok())
    });
}

/// Returns `str(value)`.
fn text(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    value::to_text(&mut out, value).map_err(refused)?;
    Ok(out)
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOperation, error.to_string())
}

fn trim(value: &Value, chars: Option<&str>) -> Result<Value, Error> {
    let owned;
    let text = match value.as_str() {
        Some(text) => text,
        None => {
            owned = text(value)?;
            &owned
        }
    };
    let trimmed = match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)),
        None => strip(text),
    };
    if value.as_str().is_some_and(|whole| whole.len() == trimmed.len()) {
        return Ok(value.clone());
    }
    Ok(Value::from(trimmed))
}

fn replace(value: &Value, old: &Value, new: &Value, count: Option<i64>) -> Result<Value, Error> {
    let (text, old, new) = (text(value)?, text(old)?, text(new)?);
    let most = count.and_then(|count| usize::try_from(count).ok());
    Ok(Value::from(match most {
        Some(most) => text.replacen(&old, &new, most),
        None => text.replace(&old, &new),
    }))
}

/// Returns the length of a value, which is 0 of an undefined one.
fn length(state: &mut State<'_, '_>, value: &Value) -> Result<usize, Error> {
    // The characters of a text are counted one by one.
    costs::charge(state, costs::of_scan(value))?;
    match value.is_undefined() {
        true => Ok(0),
        false => filters::length(value),
    }
}

/// Text of a number as both Python and this engine read it.
enum Numeral<'v> {
    /// Text without white space.
    Text(&'v str),
    /// Not a text.
    Other,
    /// No number.
    None,
}

impl<'v> Numeral<'v> {
    fn of(value: &'v Value, is_decimal: bool) -> Result<Self, Error> {
        let Some(text) = value.as_str() else {
            return Ok(Self::Other);
        };
        let text = strip(text);
        let is_special = |name: &str| text.trim_start_matches(['+', '-']).eq_ignore_ascii_case(name);
        if !text.is_ascii()
            || text.contains('_')
            || ["inf", "infinity", "nan"].iter().any(|name| is_special(name))
        {
            return Err(refused("a number is written in a way that only Python reads"));
        }
        let is_numeral = !is_decimal || text.bytes().all(|byte| b"0123456789+-.eE".contains(&byte));
        Ok(if is_numeral { Self::Text(text) } else { Self::None })
    }
}

fn no_arguments() -> Kwargs {
    std::iter::empty::<(String, Value)>().collect()
}

fn int(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = default.map_or_else(|| kwargs.get::<Option<Value>>("default"), |own| Ok(Some(own)))?;
    let base = base.map_or_else(|| kwargs.get::<Option<u32>>("base"), |own| Ok(Some(own)))?;
    kwargs.assert_all_used()?;
    let otherwise = default.clone().unwrap_or_else(|| Value::from(0));
    let call = |value: &Value| filters::int(state, value, default, base, no_arguments());
    match Numeral::of(value, base.is_none_or(|base| base == 10))? {
        Numeral::Text(text) => Ok(call(&Value::from(text)).unwrap_or(otherwise)),
        Numeral::Other => call(value),
        Numeral::None => Ok(otherwise),
    }
}

fn float(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = default.map_or_else(|| kwargs.get::<Option<Value>>("default"), |own| Ok(Some(own)))?;
    kwargs.assert_all_used()?;
    let otherwise = default.clone().unwrap_or_else(|| Value::from(0.0));
    let call = |value: &Value| filters::float(state, value, default, no_arguments());
    match Numeral::of(value, true)? {
        Numeral::Text(text) => Ok(call(&Value::from(text)).unwrap_or(otherwise)),
        Numeral::Other => call(value),
        Numeral::None => Ok(otherwise),
    }
}

/// Writes JSON as `transformers` does. Its first arguments are `ensure_ascii`, `indent` and `separators`.
fn tojson(
    value: &Value,
    ascii: Option<Value>,
    indent: Option<Value>,
    separators: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let given = |own: Option<Value>, name: &str| {
        let value = own.map_or_else(|| kwargs.get::<Option<Value>>(name), |own| Ok(Some(own)))?;
        Ok::<_, Error>(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let is_set = |own, name| Ok::<_, Error>(given(own, name)?.is_some_and(|value| value.is_true()));
    let indent = given(indent, "indent")?.map(|indent| match indent.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(usize::try_from(indent).unwrap_or(0).min(64)),
    });
    let [item, key] = match given(separators, "separators")? {
        Some(separators) => separators_of(&separators)?,
        None => [if indent.is_some() { "," } else { ", " }, ": "].map(str::to_owned),
    };
    let style = JsonStyle {
        ascii: is_set(ascii, "ensure_ascii")?,
        indent,
        item_separator: item,
        key_separator: key,
        sort_keys: is_set(None, "sort_keys")?,
    };
    kwargs.assert_all_used()?;
    value::to_json(value, &style)
        .map(Value::from)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

/// Returns the separators of items, and of a key and its value.
fn separators_of(pair: &Value) -> Result<[String; 2], Error> {
    let texts = pair.try_iter()?.map(|text| text.as_str().map(str::to_owned));
    let texts: Option<Vec<_>> = texts.collect();
    let pair = texts.and_then(|texts| <[String; 2]>::try_from(texts).ok());
    pair.ok_or_else(|| refused("the separators are no pair of texts"))
}
