//! Who may call.

use std::fmt;

use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, HeaderMap, ORIGIN};

use crate::host_names::HostNames;
use crate::refusal::{Reason, Refusal};

/// A secret that callers send as `Authorization: Bearer KEY`.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Box<str>);

impl ApiKey {
    /// The key, as callers send it.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self(key.into())
    }

    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let sent = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let key = sent.and_then(|sent| sent.split_at_checked("Bearer ".len()));
        match key {
            Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"Bearer ") && self.is(key) => Ok(()),
            _ => Err(Refusal::because(
                StatusCode::UNAUTHORIZED,
                Reason::Unauthorized,
                "an API key is required: send it as Authorization: Bearer KEY",
            )),
        }
    }

    /// Takes the same time however much of it is right.
    fn is(&self, sent: &[u8]) -> bool {
        let key = self.0.as_bytes();
        let pairs = key.iter().zip(sent);
        sent.len() == key.len() && pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(..)")
    }
}

/// Refuses a request to a name that is not the listener's own.
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

/// Refuses a request that a web page sends: browsers name the page in `Origin`.
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
