//! Reader of a URL's query with a model name.

use std::borrow::Cow;

use thiserror::Error;

/// Longest name of a model, in bytes.
const LONGEST_MODEL: usize = 4 << 10;

/// The query is ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum QueryError {
    /// The model's name is too long, or not UTF-8.
    #[error("its `model` is longer than {LONGEST_MODEL} bytes, or not UTF-8")]
    BadModel,
    /// Parsers differ in which of them counts.
    #[error("it names two different models")]
    TwoModels,
}

/// Returns the value of `model`, decoded (`application/x-www-form-urlencoded`).
pub(crate) fn model(query: &str) -> Result<Option<Cow<'_, str>>, QueryError> {
    let mut model = None;
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decode(name)? != "model" {
            continue;
        }
        let value = decode(value)?;
        if value.len() > LONGEST_MODEL {
            return Err(QueryError::BadModel);
        }
        if model.as_ref().is_some_and(|before| *before != value) {
            return Err(QueryError::TwoModels);
        }
        model = Some(value);
    }
    Ok(model)
}

/// Decodes escapes. A `%` that begins no escape is kept, as in browsers.
fn decode(text: &str) -> Result<Cow<'_, str>, QueryError> {
    if !text.contains(['%', '+']) {
        return Ok(text.into());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, behind @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high << 4 | low);
                    rest = behind;
                }
                _ => bytes.push(b'%'),
            },
            (byte, _) => bytes.push(*byte),
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| QueryError::BadModel)?;
    Ok(text.into())
}

fn digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_model_is_decoded() {
        let check = |query: &str, expected: Option<&str>| {
            assert_eq!(model(query).unwrap().as_deref(), expected, "{query}");
        };
        check("model=m", Some("m"));
        check("a=b&model=org%2Fname+x&c", Some("org/name x"));
        check("mod%65l=m", Some("m"));
        check("model=%zz%4", Some("%zz%4"));
        check("model=%c3%A4", Some("ä"));
        check("model=a&model=%61", Some("a"));
        check("model=", Some(""));
        check("model", Some(""));
        check("models=m", None);
        check("", None);
    }

    #[test]
    fn a_model_that_can_be_read_in_two_ways_is_refused() {
        assert_eq!(model("model=a&model=b"), Err(QueryError::TwoModels));
        assert_eq!(model("model=a&model"), Err(QueryError::TwoModels));
        assert_eq!(model("model=%ff"), Err(QueryError::BadModel));
        let long = format!("model={}", "a".repeat(LONGEST_MODEL + 1));
        assert_eq!(model(&long), Err(QueryError::BadModel));
    }

    proptest! {
        #[test]
        fn any_query_is_read_or_refused(query in ".{0,60}", name in "[%a-z0-9+&=]{0,20}") {
            let _ = model(&query);
            let _ = model(&format!("model={name}"));
        }
    }
}
