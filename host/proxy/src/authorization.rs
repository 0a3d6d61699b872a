//! Who the workers think is asking: a client's `Authorization` passed on, dropped, or replaced by the router's own key.

use std::fmt;

use http::header::{AUTHORIZATION, InvalidHeaderValue};
use http::{HeaderMap, HeaderValue};

/// What becomes of `Authorization` on the way to a pool's workers.
#[derive(Clone, PartialEq, Eq)]
pub enum Authorization {
    /// The client's passes.
    Pass,
    /// There is none.
    Drop,
    /// The router's own takes its place.
    Own(HeaderValue),
}

impl Authorization {
    /// `Bearer KEY` in the place of whatever the client sent.
    ///
    /// # Errors
    /// Where the key has characters that no header may have.
    pub fn bearer(key: &str) -> Result<Self, InvalidHeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {key}"))?;
        value.set_sensitive(true);
        Ok(Self::Own(value))
    }

    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
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
    fn the_clients_key_passes_goes_or_is_replaced() {
        check(&Authorization::Pass, Some("Bearer client"));
        check(&Authorization::Drop, None);
        check(&Authorization::bearer("own").unwrap(), Some("Bearer own"));
    }

    #[test]
    fn a_key_is_never_shown() {
        let own = Authorization::bearer("secret").unwrap();
        assert!(!format!("{own:?}").contains("secret"));
    }
}
