//! API keys in request headers, and their hashes.

use std::fmt;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

/// Header for the key of clients that do not use `Authorization`.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// SHA-256 hash of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Hashes a key.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }
}

impl From<[u8; 32]> for KeyHash {
    fn from(hash: [u8; 32]) -> Self {
        Self(hash)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(..)")
    }
}

/// Credentials found in a request.
pub(super) struct ShownKey<T> {
    /// Client of the key, if it is known.
    pub(super) client: Option<T>,
    /// Set if there were any credentials.
    pub(super) any: bool,
}

/// Looks up the key in `x-api-key`, else in `Authorization`. Removes a known key and always `x-api-key` from the
/// headers. An `Authorization` that is not a client's key stays: it may be for the workers.
pub(super) fn take<T>(headers: &mut HeaderMap, find: impl Fn(&KeyHash) -> Option<T>) -> ShownKey<T> {
    let found = |value: &HeaderValue| find(&KeyHash::of(secret(value)));
    let of_header = |name: &HeaderName| headers.get_all(name).iter().find_map(found);
    let (of_api_key, of_bearer) = (of_header(&X_API_KEY), of_header(&AUTHORIZATION));
    let any = headers.contains_key(&X_API_KEY) || headers.contains_key(AUTHORIZATION);
    headers.remove(&X_API_KEY);
    if of_bearer.is_some() {
        headers.remove(AUTHORIZATION);
    }
    ShownKey {
        client: of_api_key.or(of_bearer),
        any,
    }
}

/// Returns the key of a header's value: the part after `Bearer` in any case (RFC 9110, section 11.1), or the whole
/// value.
fn secret(value: &HeaderValue) -> &[u8] {
    const SCHEME: &[u8] = b"bearer ";
    let value = value.as_bytes();
    match value.split_at_checked(SCHEME.len()) {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case(SCHEME) => key.trim_ascii(),
        _ => value.trim_ascii(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the result, and which of `authorization` and `x-api-key` are left.
    #[track_caller]
    fn check(sent: &[(HeaderName, &'static str)], found: bool, any: bool, left: &[&str]) {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(name, HeaderValue::from_static(value));
        }
        let known = KeyHash::of(b"sk-known");
        let shown = take(&mut headers, |hash| (*hash == known).then_some(()));
        assert_eq!((shown.client.is_some(), shown.any), (found, any));
        let names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, left);
    }

    #[test]
    fn a_key_is_found_in_either_header_and_taken_out() {
        check(&[(AUTHORIZATION, "Bearer sk-known")], true, true, &[]);
        check(&[(AUTHORIZATION, "bearer  sk-known ")], true, true, &[]);
        check(&[(X_API_KEY, "sk-known")], true, true, &[]);
        check(
            &[(AUTHORIZATION, "Bearer sk-other")],
            false,
            true,
            &["authorization"],
        );
        check(&[(X_API_KEY, "sk-other")], false, true, &[]);
        check(
            &[(AUTHORIZATION, "Basic sk-known")],
            false,
            true,
            &["authorization"],
        );
        check(&[(AUTHORIZATION, "Bearer")], false, true, &["authorization"]);
        check(&[], false, false, &[]);
    }

    #[test]
    fn the_workers_own_key_may_come_beside_it() {
        let sent = [(X_API_KEY, "sk-known"), (AUTHORIZATION, "Bearer theirs")];
        check(&sent, true, true, &["authorization"]);
        // Of several values, none is forwarded, whichever is the key.
        let twice = [(AUTHORIZATION, "Bearer x"), (AUTHORIZATION, "Bearer sk-known")];
        check(&twice, true, true, &[]);
        let both = [(X_API_KEY, "sk-known"), (AUTHORIZATION, "Bearer sk-known")];
        check(&both, true, true, &[]);
    }

    #[test]
    fn a_hash_is_the_one_that_sha256sum_prints() {
        let hash = KeyHash::of(b"test").0;
        assert_eq!(hash[..4], [0x9f, 0x86, 0xd0, 0x81]);
        assert_eq!(format!("{:?}", KeyHash::of(b"test")), "KeyHash(..)");
    }
}
