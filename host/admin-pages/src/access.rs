//! Access to the admin pages: the admin key, the host names of pages, and the listener of a request.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderMap, ORIGIN};
use axum::http::{Response, StatusCode};
use axum::middleware::Next;
use conductor_config::ServerConfig;
use indexer_api::{ApiKey, HostNames, SentKey};

use crate::refusal::Refusal;

/// Listener that a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    /// Clients send requests to it: every change needs the key.
    Clients,
    /// Clients do not reach it: a change needs the key if there is one.
    Operators,
}

/// Admin key that a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentAdminKey {
    Missing,
    Wrong,
    Right,
}

impl SentAdminKey {
    /// Returns its name on pages.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "none",
            Self::Wrong => "wrong",
            Self::Right => "right",
        }
    }
}

/// Pages without access control: liveness and readiness probes read them.
const OPEN: [&str; 2] = ["/health", "/readyz"];

/// Returns true for the dashboard's page and files. They hold no data of the router.
fn is_dashboard(path: &str) -> bool {
    path == "/" || path == "/ui" || path.starts_with("/ui/")
}

/// Current admin key, if any. The reload thread changes it.
#[derive(Debug, Clone, Default)]
pub struct AdminKey(Arc<RwLock<AdminAccess>>);

#[derive(Debug, Default)]
struct AdminAccess {
    key: Option<ApiKey>,
    /// True if reads need the key too.
    for_reads: bool,
    /// Host names that need no key; `None` for any.
    hosts: Option<HostNames>,
    /// Number of changes of the key or of its use.
    revision: u64,
}

/// Returns the host names that a listener answers to without a key. `None` stands for any: other machines use names of
/// their own.
#[must_use]
pub fn host_names(address: Option<SocketAddr>, server: &ServerConfig) -> Option<HostNames> {
    let is_loopback = address.is_some_and(|address| address.ip().to_canonical().is_loopback());
    is_loopback.then(|| HostNames::with(&server.admin_hosts))
}

impl AdminKey {
    /// Replaces the key and its rules. `address`: the configured address of the open listener, which decides the host
    /// names that need no key. It differs from `server.admin_listen` after "off".
    pub fn set(&self, key: Option<ApiKey>, address: Option<SocketAddr>, server: &ServerConfig) {
        let for_reads = server.admin_key_for_reads;
        let mut access = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_same = access.key == key && access.for_reads == for_reads;
        *access = AdminAccess {
            key,
            for_reads,
            hosts: host_names(address, server),
            revision: access.revision + u64::from(!is_same),
        };
    }

    /// Checks access to a reload. Its empty body needs no content type.
    pub(crate) fn check_reload(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let access = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match &access.key {
            Some(key) => compare(key, headers),
            None if headers.contains_key(ORIGIN) => Err(of_a_page()),
            None => Ok(()),
        }
    }

    /// Middleware of every page of the operators' listener.
    pub(crate) async fn guard(State(key): State<Self>, request: Request, next: Next) -> Response<Body> {
        let checked = key.check_read(request.uri().path(), request.headers());
        match checked {
            Ok(()) => next.run(request).await,
            Err(refusal) => refusal.into_response(),
        }
    }

    fn check_read(&self, path: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        let access = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if OPEN.contains(&path) || is_dashboard(path) {
            return Ok(());
        }
        match (&access.key, &access.hosts) {
            (Some(key), _) if access.for_reads => compare(key, headers),
            // A web page does not know the key, whatever name it points here.
            (Some(key), Some(hosts)) if !hosts.allow(headers) => {
                compare(key, headers).map_err(|_| host_not_allowed())
            }
            (None, Some(hosts)) if !hosts.allow(headers) => Err(host_not_allowed()),
            _ => Ok(()),
        }
    }

    /// Returns the admin key that a request has. `None` if no key is configured.
    pub(crate) fn sent(&self, headers: &HeaderMap) -> Option<SentAdminKey> {
        let access = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let key = access.key.as_ref()?;
        Some(match key.sent_in(headers) {
            SentKey::Right => SentAdminKey::Right,
            SentKey::Wrong => SentAdminKey::Wrong,
            SentKey::Missing => SentAdminKey::Missing,
        })
    }

    /// Returns `true` if reads need the key too.
    pub(crate) fn guards_reads(&self) -> bool {
        let access = self.0.read().unwrap_or_else(PoisonError::into_inner);
        access.key.is_some() && access.for_reads
    }

    /// Checks access to a page that shows secrets or changes files. It needs a configured key.
    pub(crate) fn check_configured(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if self.check_secrets(headers)? {
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "admin_api_key_not_set",
            "this page needs an admin key: set `admin-api-key` of [server]",
        ))
    }

    /// Checks access to a page with secrets. Returns `false` if no key is configured: then it must hide them.
    pub(crate) fn check_secrets(&self, headers: &HeaderMap) -> Result<bool, Refusal> {
        let access = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match &access.key {
            Some(key) => compare(key, headers).map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns a number that changes with the rules of reads. An open stream ends when it does.
    pub(crate) fn revision(&self) -> u64 {
        let access = self.0.read().unwrap_or_else(PoisonError::into_inner);
        access.revision
    }

    /// Checks access to a change.
    pub(crate) fn check(&self, headers: &HeaderMap, listener: Listener) -> Result<(), Refusal> {
        let access = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match (&access.key, listener) {
            (Some(key), _) => compare(key, headers),
            (None, Listener::Clients) => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "admin_api_key_not_set",
                "this page is not for clients, and without an admin key every caller counts as one: set `admin-api-key` of [server], or the \
                 environment variable ADMIN_API_KEY before the start, or use the admin listener",
            )),
            // Browsers name the page that sends; to an address of its own (DNS rebinding) one may send anything.
            (None, Listener::Operators) if headers.contains_key(ORIGIN) => Err(of_a_page()),
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

/// Checks the key in `X-API-Key` or `Authorization: Bearer`.
fn compare(key: &ApiKey, headers: &HeaderMap) -> Result<(), Refusal> {
    match key.sent_in(headers) {
        SentKey::Right => Ok(()),
        SentKey::Wrong => Err(unauthorized("the key that was sent is not the admin key")),
        SentKey::Missing => Err(unauthorized(
            "an admin key is required: send it as X-API-Key: KEY, or as Authorization: Bearer KEY",
        )),
    }
}

fn of_a_page() -> Refusal {
    let message = "without an admin key no web page may change anything: set `admin-api-key` of [server]";
    Refusal::new(StatusCode::FORBIDDEN, "sent_by_a_page", message)
}

fn host_not_allowed() -> Refusal {
    let message = "without the admin key this listener answers only to localhost: send the key, or list the name that `Host` has in \
                   `admin-hosts` of [server]";
    Refusal::new(StatusCode::FORBIDDEN, "host_not_allowed", message)
}

fn unauthorized(message: &str) -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;
    use axum::http::header::{AUTHORIZATION, HOST};

    use super::*;

    const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

    #[track_caller]
    fn check(key: Option<&str>, listener: Listener, headers: &[(HeaderName, &str)], status: Option<u16>) {
        let admin = AdminKey::default();
        admin.set(key.map(ApiKey::new), None, &ServerConfig::default());
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        let checked = admin.check(&headers.collect(), listener);
        assert_eq!(checked.err().map(|refusal| refusal.status.as_u16()), status);
    }

    #[test]
    fn without_a_key_files_are_not_edited_and_secrets_not_shown() {
        let json = [(CONTENT_TYPE, "application/json".parse().unwrap())];
        let headers: HeaderMap = json.into_iter().collect();
        let admin = AdminKey::default();
        let server = ServerConfig {
            admin_listen: Some("127.0.0.1:1".parse().unwrap()),
            ..ServerConfig::default()
        };
        admin.set(None, server.admin_listen, &server);
        assert!(!admin.check_secrets(&headers).unwrap());
        let refused = admin.check_configured(&headers).unwrap_err();
        assert_eq!(
            (refused.status, refused.code),
            (StatusCode::FORBIDDEN, "admin_api_key_not_set")
        );
    }

    #[test]
    fn a_key_is_required_wherever_there_is_one() {
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
    fn the_key_may_also_be_a_bearers() {
        check(
            Some("secret"),
            Listener::Clients,
            &[(AUTHORIZATION, "bearer secret")],
            None,
        );
        check(
            Some("secret"),
            Listener::Clients,
            &[(AUTHORIZATION, "Basic secret")],
            Some(401),
        );
    }

    #[test]
    fn pages_require_it_only_where_that_is_configured() {
        let none = HeaderMap::new();
        let admin = AdminKey::default();
        admin.set(
            Some(ApiKey::new("secret")),
            ServerConfig::default().admin_listen,
            &ServerConfig::default(),
        );
        assert!(admin.check_read("/admin/config", &none).is_ok());
        let for_reads = ServerConfig {
            admin_key_for_reads: true,
            ..ServerConfig::default()
        };
        admin.set(Some(ApiKey::new("secret")), for_reads.admin_listen, &for_reads);
        assert!(admin.check_read("/admin/config", &none).is_err());
        for open in ["/readyz", "/", "/ui", "/ui/requests/1", "/ui/assets/0/main.js"] {
            assert!(admin.check_read(open, &none).is_ok(), "{open}");
        }
        assert!(admin.check_read("/uix", &none).is_err());
        let shown = HeaderMap::from_iter([(X_API_KEY, "secret".parse().unwrap())]);
        assert!(admin.check_read("/metrics", &shown).is_ok());
    }

    #[test]
    fn a_rebound_name_is_answered_nothing_on_the_loopback() {
        let admin = AdminKey::default();
        let read = |admin: &AdminKey, host: &str, key: Option<&str>| {
            let mut headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            if let Some(key) = key {
                headers.insert(X_API_KEY, key.parse().unwrap());
            }
            let checked = admin.check_read("/admin/config", &headers);
            assert!(admin.check_read("/readyz", &headers).is_ok());
            checked.err().map(|refusal| refusal.code)
        };
        let refused = Some("host_not_allowed");
        let mut server = ServerConfig::default();
        for key in [None, Some("secret")] {
            admin.set(key.map(ApiKey::new), server.admin_listen, &server);
            assert_eq!(read(&admin, "rebound.example:8081", None), refused);
            assert_eq!(read(&admin, "localhost:8081", None), None);
        }
        assert_eq!(read(&admin, "rebound.example", Some("secret")), None);
        server.admin_hosts = vec!["ops.example".to_owned()];
        admin.set(None, server.admin_listen, &server);
        assert_eq!(read(&admin, "ops.example", None), None);
        assert_eq!(read(&admin, "rebound.example", None), refused);
        // Other machines reach it by names that only their owner can list.
        server.admin_listen = Some("0.0.0.0:8081".parse().unwrap());
        admin.set(None, server.admin_listen, &server);
        assert_eq!(read(&admin, "rebound.example", None), None);
    }

    #[test]
    fn a_reload_requires_the_key_where_there_is_one() {
        let admin = AdminKey::default();
        let of_a_page = HeaderMap::from_iter([(ORIGIN, "http://evil.example".parse().unwrap())]);
        assert!(admin.check_reload(&HeaderMap::new()).is_ok());
        assert!(admin.check_reload(&of_a_page).is_err());
        admin.set(
            Some(ApiKey::new("secret")),
            ServerConfig::default().admin_listen,
            &ServerConfig::default(),
        );
        assert!(admin.check_reload(&HeaderMap::new()).is_err());
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
