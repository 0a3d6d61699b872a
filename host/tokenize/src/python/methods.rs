//! Methods of texts, lists and dictionaries.

use minijinja::value::{Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::{is_space, strip, strip_end};
use crate::costs;

/// Methods that look at the beginning, the end or one entry of a value.
const CHEAP: [&str; 4] = ["startswith", "endswith", "get", "copy"];

/// Calls a method of a value.
pub(super) fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let own = match (value.kind(), value.as_str()) {
        (ValueKind::String, Some(text)) => of_text(text, method, args)?,
        (ValueKind::Seq, _) => of_list(value, method, args)?,
        (ValueKind::Map, _) if method == "copy" => {
            let () = from_args(args)?;
            Some(value.clone())
        }
        _ => None,
    };
    let result = match own {
        Some(result) => result,
        None => unknown_method_callback(state, value, method, args)?,
    };
    if !CHEAP.contains(&method) {
        let cost = costs::of_copy(value).max(costs::of_copy(&result));
        costs::charge(state, cost)?;
    }
    Ok(result)
}

fn refused(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

fn of_list(list: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "copy" => {
            let () = from_args(args)?;
            list.clone()
        }
        "index" => {
            let (item,): (&Value,) = from_args(args)?;
            let at = list.try_iter()?.position(|other| other == *item);
            Value::from(at.ok_or_else(|| refused("this item is not in the list"))?)
        }
        _ => return Ok(None),
    }))
}

fn of_text(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => stripped(text, method, args)?,
        "split" => match from_args(args)? {
            (None::<&str>, most) => split_at_space(text, most),
            _ => return Ok(None),
        },
        "rsplit" => split_from_end(text, args)?,
        "splitlines" => {
            let (keeps_ends,): (Option<bool>,) = from_args(args)?;
            lines(text, keeps_ends.unwrap_or(false))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            parts(text, nonempty(separator)?, method == "partition")
        }
        "index" => {
            let (what,): (&str,) = from_args(args)?;
            let at = text
                .find(what)
                .ok_or_else(|| refused("this text is not in the other"))?;
            Value::from(text[..at].chars().count())
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "ljust" | "rjust" | "zfill" => padded(text, method, args)?,
        "title" => {
            let () = from_args(args)?;
            title(text)
        }
        "swapcase" => {
            let () = from_args(args)?;
            swapped(text)
        }
        "isspace" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(is_space))
        }
        "isdigit" | "isdecimal" | "isnumeric" => {
            let () = from_args(args)?;
            is_number(text)?
        }
        _ => return Ok(None),
    }))
}

fn nonempty(separator: &str) -> Result<&str, Error> {
    match separator.is_empty() {
        true => Err(refused("a separator is empty")),
        false => Ok(separator),
    }
}

fn stripped(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (chars,): (Option<&str>,) = from_args(args)?;
    let goes = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    Ok(Value::from(match (method, chars) {
        ("strip", None) => strip(text),
        ("rstrip", None) => strip_end(text),
        ("strip", _) => text.trim_matches(goes),
        ("rstrip", _) => text.trim_end_matches(goes),
        _ => text.trim_start_matches(goes),
    }))
}

/// Splits at runs of white space, at most so many times; a negative number is no limit.
fn split_at_space(text: &str, most: Option<i64>) -> Value {
    let mut left = most.and_then(|most| usize::try_from(most).ok());
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let end = match left {
            Some(0) => rest.len(),
            _ => rest.find(is_space).unwrap_or(rest.len()),
        };
        found.push(Value::from(&rest[..end]));
        rest = rest[end..].trim_start_matches(is_space);
        left = left.map(|left| left.saturating_sub(1));
    }
    Value::from(found)
}

fn split_from_end(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, most): (&str, Option<i64>) = from_args(args)?;
    let separator = nonempty(separator)?;
    let most = most.and_then(|most| usize::try_from(most).ok());
    let mut found: Vec<_> = match most {
        Some(most) => text
            .rsplitn(most.saturating_add(1), separator)
            .map(Value::from)
            .collect(),
        None => text.rsplit(separator).map(Value::from).collect(),
    };
    found.reverse();
    Ok(Value::from(found))
}

/// Splits at all line ends of `str.splitlines`.
fn lines(text: &str, keeps_ends: bool) -> Value {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.find(is_end).unwrap_or(rest.len());
        let end = match &rest[at..] {
            after if after.starts_with("\r\n") => 2,
            after => after.chars().next().map_or(0, char::len_utf8),
        };
        found.push(Value::from(&rest[..if keeps_ends { at + end } else { at }]));
        rest = &rest[at + end..];
    }
    Value::from(found)
}

/// Returns the text before a separator, the separator, and the text after it.
fn parts(text: &str, separator: &str, is_first: bool) -> Value {
    let at = if is_first {
        text.find(separator)
    } else {
        text.rfind(separator)
    };
    let parts = match at {
        Some(at) => [&text[..at], separator, &text[at + separator.len()..]],
        None if is_first => [text, "", ""],
        None => ["", "", text],
    };
    Value::from(Tuple::from(parts.map(Value::from).to_vec()))
}

/// Fills a text up to a width.
fn padded(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    /// Widest text; templates use a few characters.
    const WIDEST: usize = 1024;
    let (width, fill): (usize, Option<char>) = from_args(args)?;
    if width > WIDEST || (method == "zfill" && fill.is_some()) {
        return Err(refused("a text is filled in another way than templates do"));
    }
    let missing = width.saturating_sub(text.chars().count());
    let filling = fill.unwrap_or(if method == "zfill" { '0' } else { ' ' });
    let filling = String::from(filling).repeat(missing);
    let sign = text
        .strip_prefix(['+', '-'])
        .map_or(0, |rest| text.len() - rest.len());
    Ok(Value::from(match method {
        "ljust" => [text, &filling].concat(),
        "rjust" => [&*filling, text].concat(),
        _ => [&text[..sign], &filling, &text[sign..]].concat(),
    }))
}

/// Begins each run of letters with a capital.
fn title(text: &str) -> Value {
    let mut out = String::with_capacity(text.len());
    let mut is_within = false;
    for c in text.chars() {
        match is_within {
            true => out.extend(c.to_lowercase()),
            false => out.extend(c.to_uppercase()),
        }
        is_within = c.is_uppercase() || c.is_lowercase();
    }
    Value::from(out)
}

fn swapped(text: &str) -> Value {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_uppercase() {
            true => out.extend(c.to_lowercase()),
            false => out.extend(c.to_uppercase()),
        }
    }
    Value::from(out)
}

/// Returns `true` if a text has only digits. Which other characters are digits depends on the method.
fn is_number(text: &str) -> Result<Value, Error> {
    if text.chars().any(|c| !c.is_ascii() && c.is_numeric()) {
        return Err(refused("a text has digits of other scripts"));
    }
    Ok(Value::from(
        !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()),
    ))
}
