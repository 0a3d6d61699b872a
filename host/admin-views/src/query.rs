//! Query string of a page: its known keys, decoded.

use std::str::FromStr;

use percent_encoding::percent_decode_str;
use thiserror::Error;

/// Longest query string in bytes.
const LONGEST: usize = 2 << 10;

/// Error of a query string.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QueryError {
    /// The query string is too long.
    #[error("the query string has {0} bytes, of at most {LONGEST}")]
    TooLong(usize),
    /// The page has no such key.
    #[error("the page has no query key `{key}`; the keys are {keys}")]
    UnknownKey {
        /// Key of the query.
        key: String,
        /// Keys of the page.
        keys: String,
    },
    /// A value is not what its key needs.
    #[error("`{key}` of the query is `{value}`: it must be {expected}")]
    Invalid {
        /// Key of the query.
        key: &'static str,
        /// Its value.
        value: String,
        /// Description of valid values.
        expected: &'static str,
    },
}

/// Decoded query string.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(&'static str, String)>);

impl Query {
    /// Decodes a query string. Keys without a value are left out.
    pub(crate) fn parse(text: &str, keys: &[&'static str]) -> Result<Self, QueryError> {
        if text.len() > LONGEST {
            return Err(QueryError::TooLong(text.len()));
        }
        let mut values = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = decoded(key);
            let known = keys.iter().find(|known| **known == key);
            let known = known.ok_or_else(|| QueryError::UnknownKey {
                key: key.clone(),
                keys: keys.join(", "),
            })?;
            if !value.is_empty() {
                values.push((*known, decoded(value)));
            }
        }
        Ok(Self(values))
    }

    /// Returns the last value of a key.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        let mut values = self.0.iter().rev();
        values
            .find(|(known, _)| *known == key)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the last value of a key as a number that `is_valid`.
    pub(crate) fn number<T: FromStr>(
        &self,
        key: &'static str,
        expected: &'static str,
        is_valid: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, QueryError> {
        let Some(value) = self.text(key) else {
            return Ok(None);
        };
        let number = value.parse().ok().filter(is_valid);
        let invalid = || QueryError::Invalid {
            key,
            value: value.to_owned(),
            expected,
        };
        number.map(Some).ok_or_else(invalid)
    }
}

/// Decodes a part of a query string, in which `+` stands for a space.
fn decoded(part: &str) -> String {
    let spaced = part.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_the_last_one_counts() {
        let query = Query::parse("model=a%2Fb+c&&pool=&model=%C3%A9", &["model", "pool"]).unwrap();
        assert_eq!(query.text("model"), Some("é"));
        assert_eq!(query.text("pool"), None);
        let query = Query::parse("model=a%2Fb+c", &["model"]).unwrap();
        assert_eq!(query.text("model"), Some("a/b c"));
    }

    #[test]
    fn unknown_keys_and_invalid_values_are_refused_by_name() {
        let error = Query::parse("modle=a", &["model"]).unwrap_err();
        assert!(error.to_string().contains("`modle`"), "{error}");
        let query = Query::parse("limit=-1", &["limit"]).unwrap();
        let error = query.number::<u64>("limit", "a number", |_| true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`limit` of the query is `-1`: it must be a number"
        );
        let long = format!("model={}", "a".repeat(LONGEST));
        assert!(matches!(
            Query::parse(&long, &["model"]),
            Err(QueryError::TooLong(_))
        ));
    }
}
