//! Who may change what is in force.

use std::sync::{Arc, PoisonError, RwLock};

use axum::http::header::{CONTENT_TYPE, HeaderMap, ORIGIN};
use axum::http::{HeaderName, StatusCode};

use crate::keys::Key;
use crate::refusal::Refusal;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Which listener a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    /// Whoever may send requests is there: nobody changes anything without a key.
    Clients,
    /// Kept away from clients: a key is asked for where there is one.
    Operators,
}

/// The key in force; none: there is none. The reload thread changes it.
#[derive(Debug, Clone, Default)]
pub(crate) struct AdminKey(Arc<RwLock<Option<Key>>>);

impl AdminKey {
    /// Puts another in force.
    pub(crate) fn set(&self, key: Option<Key>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = key;
    }

    /// Whether a request may change something.
    pub(crate) fn check(&self, headers: &HeaderMap, listener: Listener) -> Result<(), Refusal> {
        let key = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match (&*key, listener) {
            (Some(key), _) => match headers.get(X_API_KEY) {
                Some(sent) if is_same(key.reveal().as_bytes(), sent.as_bytes()) => Ok(()),
                Some(_) => Err(unauthorized("the key in `X-API-Key` is not the admin key")),
                None => Err(unauthorized(
                    "an admin key is required: send it as X-API-Key: KEY",
                )),
            },
            (None, Listener::Clients) => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "admin_api_key_not_set",
                "instances cannot be changed here while there is no admin key: set `admin-api-key` of [server], or the \
                 environment variable ADMIN_API_KEY before the start, or use the admin listener",
            )),
            // Browsers name the page that sends; to an address of its own (DNS rebinding) one may send anything.
            (None, Listener::Operators) if headers.contains_key(ORIGIN) => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "sent_by_a_page",
                "without an admin key no web page may change anything: set `admin-api-key` of [server]",
            )),
            (None, Listener::Operators) if is_json(headers) => Ok(()),
            // No web page can have a browser send that to another site unasked.
            (None, Listener::Operators) => Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "content_type_not_json",
                "without an admin key the body must be sent as Content-Type: application/json",
            )),
        }
    }
}

fn unauthorized(message: &str) -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
}

/// Takes the same time however much of it is right.
fn is_same(key: &[u8], sent: &[u8]) -> bool {
    let pairs = key.iter().zip(sent);
    sent.len() == key.len() && pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: Option<&str>, listener: Listener, headers: &[(HeaderName, &str)], status: Option<u16>) {
        let admin = AdminKey::default();
        admin.set(key.map(Key::of_test));
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        let checked = admin.check(&headers.collect(), listener);
        assert_eq!(checked.err().map(|refusal| refusal.status.as_u16()), status);
    }

    #[test]
    fn a_key_is_asked_for_wherever_there_is_one() {
        for listener in [Listener::Clients, Listener::Operators] {
            check(Some("secret"), listener, &[(X_API_KEY, "secret")], None);
            for wrong in ["secret2", "secre", "Secret", ""] {
                check(Some("secret"), listener, &[(X_API_KEY, wrong)], Some(401));
            }
            check(
                Some("secret"),
                listener,
                &[(CONTENT_TYPE, "application/json")],
                Some(401),
            );
        }
    }

    #[test]
    fn without_a_key_only_operators_may_and_no_web_page_of_theirs() {
        let json = [(CONTENT_TYPE, "application/json; charset=utf-8")];
        check(None, Listener::Clients, &json, Some(403));
        check(None, Listener::Clients, &[(X_API_KEY, "")], Some(403));
        check(None, Listener::Operators, &json, None);
        check(
            None,
            Listener::Operators,
            &[(CONTENT_TYPE, "text/plain")],
            Some(415),
        );
        check(None, Listener::Operators, &[], Some(415));
        let of_a_page = [json[0].clone(), (ORIGIN, "http://evil.example")];
        check(None, Listener::Operators, &of_a_page, Some(403));
    }
}
