//! `Authorization` of requests to workers: the client's passes, is dropped, or is replaced by the router's own key.

use std::fmt;

use http::header::{AUTHORIZATION, InvalidHeaderValue};
use http::{HeaderMap, HeaderValue};

/// Handling of `Authorization` on requests to a pool's workers.
#[derive(Clone, PartialEq, Eq)]
pub enum Authorization {
    /// The client's value passes.
    Pass,
    /// The header is removed.
    Drop,
    /// The router's own value replaces it.
    Own(HeaderValue),
}

impl Authorization {
    /// Returns the handling that replaces the client's value with `Bearer KEY`.
    ///
    /// # Errors
    /// The key has characters that a header cannot carry.
    pub fn bearer(key: &str) -> Result<Self, InvalidHeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {key}"))?;
        value.set_sensitive(true);
        Ok(Self::Own(value))
    }

    /// Applies the handling to a request's headers.
    pub fn apply(&self, headers: &mut HeaderMap) {
        match self {
            Self::Pass => {}
            Self::Drop => {
                headers.remove(AUTHORIZATION);
            }
            Self::Own(value) => {
                headers.insert(AUTHORIZATION, value.clone());
            }
        }
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "Pass",
            Self::Drop => "Drop",
            Self::Own(_) => "Own(..)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(authorization: &Authorization, expected: Option<&str>) {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer client"));
        authorization.apply(&mut headers);
        let left = headers
            .get(AUTHORIZATION)
            .map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(left.as_deref(), expected);
    }

    #[test]
    fn the_clients_key_passes_or_is_dropped_or_replaced() {
        check(&Authorization::Pass, Some("Bearer client"));
        check(&Authorization::Drop, None);
        check(&Authorization::bearer("own").unwrap(), Some("Bearer own"));
    }

    #[test]
    fn debug_output_contains_no_key() {
        let own = Authorization::bearer("secret").unwrap();
        assert!(!format!("{own:?}").contains("secret"));
    }
}
