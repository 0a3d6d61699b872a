//! Access control: API keys, `Host` and `Origin` checks.

use std::fmt;

use axum::http::header::{AUTHORIZATION, HeaderMap, ORIGIN};
use axum::http::{HeaderName, StatusCode};

use crate::host_names::HostNames;
use crate::refusal::{Reason, Refusal};

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// A secret that callers send as `X-API-Key: KEY` or `Authorization: Bearer KEY`.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Box<str>);

impl ApiKey {
    /// Creates the key from its text.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self(key.into())
    }

    /// Compares the key of a request with this one; `X-API-Key` has precedence over `Authorization`.
    #[must_use]
    pub fn sent_in(&self, headers: &HeaderMap) -> SentKey {
        let bearer = headers.get(AUTHORIZATION).and_then(|value| {
            let (scheme, sent) = value.as_bytes().split_at_checked(b"bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"bearer ").then(|| sent.trim_ascii())
        });
        let sent = headers.get(X_API_KEY).map(|sent| sent.as_bytes()).or(bearer);
        match sent {
            Some(sent) if self.is(sent) => SentKey::Right,
            Some(_) => SentKey::Wrong,
            None => SentKey::Missing,
        }
    }

    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match self.sent_in(headers) {
            SentKey::Right => Ok(()),
            SentKey::Wrong | SentKey::Missing => Err(Refusal::because(
                StatusCode::UNAUTHORIZED,
                Reason::Unauthorized,
                "an API key is required: send it as Authorization: Bearer KEY",
            )),
        }
    }

    /// Compares in constant time.
    fn is(&self, sent: &[u8]) -> bool {
        let key = self.0.as_bytes();
        let pairs = key.iter().zip(sent);
        sent.len() == key.len() && pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

/// Result of comparing the key of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentKey {
    /// The request has the right key.
    Right,
    /// The request has another key.
    Wrong,
    /// The request has no key.
    Missing,
}

/// Access rules: an API key or, without one, a list of host names.
#[derive(Debug, Clone, Default)]
pub struct IndexerAccess {
    /// Key that every caller must send, if any.
    pub api_key: Option<ApiKey>,
    /// Host names accepted without a key; `None` accepts any.
    pub hosts: Option<HostNames>,
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(..)")
    }
}

/// Refuses a request whose `Host` is not a name of the listener.
pub(crate) fn check_host(hosts: &HostNames, headers: &HeaderMap) -> Result<(), Refusal> {
    if hosts.allow(headers) {
        return Ok(());
    }
    Err(Refusal::because(
        StatusCode::FORBIDDEN,
        Reason::HostNotAllowed,
        "without an API key only requests to localhost are answered: set `api-key-file` of [indexer], or list the name in \
         `admin-hosts` of [server]",
    ))
}

/// Refuses a request sent by a web page: browsers name the page in `Origin`.
pub(crate) fn check_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    if !headers.contains_key(ORIGIN) {
        return Ok(());
    }
    Err(Refusal::because(
        StatusCode::FORBIDDEN,
        Reason::SentByAPage,
        "without an API key no web page may change anything: set `api-key-file` of [indexer]",
    ))
}
