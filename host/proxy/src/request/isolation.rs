//! Isolation of tenants' prefix caches: every request of a pool with `isolate-prefixes` has a `cache_salt` of its
//! tenant.
//!
//! Engines mix `cache_salt` into the hash of a prompt's first block, and each hash covers the one before (vLLM: RFC
//! 2025-02 "cache salting", <https://docs.vllm.ai/en/latest/design/prefix_caching.html>). Blocks with different salts
//! never match. So no client can measure by its time to first token what another tenant's prompts left in a cache.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

/// Bytes of the digest that are used: 128 bits.
const SALT_BYTES: usize = 16;
/// Prefix that separates these digests from others over the same names.
const DOMAIN: &[u8] = b"conductor cache_salt 1\0";

/// Returns the salt of a tenant's request, in hexadecimal digits. The salt is the first 128 bits of SHA-256 over a
/// fixed prefix, the tenant's name, a zero byte and the request's own salt. The result is the same in every router and
/// after a restart.
///
/// A client cannot choose another tenant's salt, since its own salt is only a part of the hashed bytes.
pub(crate) fn salt(tenant: &str, own: Option<&str>) -> String {
    let digest = Sha256::new()
        .chain_update(DOMAIN)
        .chain_update(tenant)
        .chain_update([0])
        .chain_update(own.unwrap_or_default())
        .finalize();
    routing::hex(&digest[..SALT_BYTES])
}

/// Returns the salt of a prompt's lookup in the index: the salt of the request, under SGLang's `extra_key` if it has
/// one.
///
/// SGLang keeps a cache of its own for each extra key and its events do not name the key. So such a prompt matches no
/// block of an event.
pub(crate) fn lookup_salt<'a>(
    salt: Option<Cow<'a, str>>,
    extra_key: Option<Cow<'_, str>>,
) -> Option<Cow<'a, str>> {
    match extra_key.filter(|key| !key.is_empty()) {
        Some(key) => {
            let salt = salt.unwrap_or_default();
            Some(Cow::Owned(format!("extra_key\0{key}\0{salt}")))
        }
        None => salt,
    }
}

/// Returns the body with the salt as its last member. Of several members with one name, engines take the last. `body`
/// is a JSON object that was read.
pub(crate) fn salted(body: &Bytes, salt: &str) -> Bytes {
    let object = body.trim_ascii_end();
    let members = object.strip_suffix(b"}").unwrap_or(object);
    let is_empty = members.trim_ascii_end().ends_with(b"{") && members.trim_ascii().len() == 1;
    let member = format!("{}\"cache_salt\":\"{salt}\"}}", if is_empty { "" } else { "," });
    let mut salted = BytesMut::with_capacity(members.len() + member.len());
    salted.extend_from_slice(members);
    salted.extend_from_slice(member.as_bytes());
    salted.freeze()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn prompts_with_an_extra_key_are_looked_up_under_it() {
        let found = |salt: Option<&'static str>, key: Option<&'static str>| {
            lookup_salt(salt.map(Cow::Borrowed), key.map(Cow::Borrowed))
        };
        for salt in [None, Some("s")] {
            assert_eq!(found(salt, None).as_deref(), salt);
            assert_eq!(found(salt, Some("")).as_deref(), salt, "SGLang takes it for none");
            assert_ne!(found(salt, Some("k")), found(salt, None));
            assert_ne!(found(salt, Some("k")), found(salt, Some("l")));
        }
        assert_ne!(found(Some("s"), Some("k")), found(None, Some("k")));
    }

    #[test]
    fn tenants_and_salts_of_their_own_never_share_a_salt() {
        let salts = [
            salt("a", None),
            salt("b", None),
            salt("a", Some("x")),
            salt("b", Some("x")),
            // Names that a client could try, to hash as another tenant.
            salt("", Some("a")),
            salt("a\0x", None),
        ];
        for (at, salt) in salts.iter().enumerate() {
            assert_eq!(salt.len(), 2 * SALT_BYTES);
            assert!(!salts[..at].contains(salt), "salt {at}");
        }
        assert_eq!(salt("a", Some("")), salts[0]);
    }

    #[test]
    fn the_salt_is_the_last_member_whatever_the_body_ends_with() {
        let check = |body: &'static str, expected: Value| {
            let salted = salted(&Bytes::from_static(body.as_bytes()), "s");
            let read: Value = serde_json::from_slice(&salted).unwrap();
            assert_eq!(read, expected, "{body}");
        };
        check("{}", json!({ "cache_salt": "s" }));
        check(" {\n}\r\n", json!({ "cache_salt": "s" }));
        check(r#"{"a":{}}"#, json!({ "a": {}, "cache_salt": "s" }));
        check("{\"a\":1 }\n", json!({ "a": 1, "cache_salt": "s" }));
        check(
            r#"{"cache_salt":"mine","a":"}"}"#,
            json!({ "a": "}", "cache_salt": "s" }),
        );
    }
}
