//! Failures to reach a router, and its refusals.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use http::header::InvalidHeaderValue;
use local_files::ADMIN_API_KEY;
use serde_json::Value;
use thiserror::Error;
use worker_client::tls::TlsError;

/// Failure to reach a router, or its refusal.
#[derive(Debug, Error)]
pub enum RemoteError {
    /// The router is not reachable.
    #[error("failed to reach the router at `{url}`: {cause}; {fix}")]
    Unreachable {
        /// Address.
        url: String,
        /// Cause.
        cause: String,
        /// Cure.
        fix: &'static str,
    },
    /// The router did not answer in time.
    #[error("failed to query the router: no answer of `{url}` within {limit:?}; {RUNS}")]
    Timeout {
        /// Address of the page.
        url: String,
        /// The time limit.
        limit: Duration,
    },
    /// The address is malformed.
    #[error("failed to use the address `{url}` of a router: {cause}; write it like http://127.0.0.1:8081")]
    Address {
        /// Address.
        url: String,
        /// Cause.
        cause: String,
    },
    /// The key cannot be sent.
    #[error("failed to send the admin key: no header can carry it")]
    Key(#[source] InvalidHeaderValue),
    /// The file of the key cannot be read.
    #[error("failed to read the admin key from `{}`", path.display())]
    KeyFile {
        /// File.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A file of authorities or of a certificate cannot be read.
    #[error("failed to read the file `{}` of {flag}", path.display())]
    TlsFile {
        /// Flag that names it.
        flag: &'static str,
        /// File.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The authorities or the certificate are unusable.
    #[error("failed to prepare TLS for the router at `{url}`; check --admin-ca and --admin-cert")]
    Tls {
        /// Address.
        url: String,
        /// Cause.
        #[source]
        source: TlsError,
    },
    /// The router refuses.
    #[error("the router at `{router}` refused: {message} ({status}){}", hint(*status, page))]
    Refused {
        /// Address of the router.
        router: String,
        /// Status.
        status: StatusCode,
        /// Reason.
        message: String,
        /// The answer's page.
        page: Box<Value>,
    },
    /// The answer is not that of a router's admin page.
    #[error("failed to understand the answer of `{url}`: {cause}; is that the admin listener of a router?")]
    Answer {
        /// Address of the page.
        url: String,
        /// Cause.
        cause: String,
    },
    /// The event stream ended.
    #[error("lost the event stream of `{url}`: {cause}")]
    Stream {
        /// Address of the page.
        url: String,
        /// Cause.
        cause: String,
    },
}

/// Cure if nothing listens at an address.
pub(super) const RUNS: &str = "check that it runs, and name its admin listener (`admin-listen` of [server]) with --admin or CONDUCTOR_ADMIN";
/// Cure if the connection fails otherwise.
pub(super) const ADDRESS: &str =
    "name its admin listener (`admin-listen` of [server]) with --admin or CONDUCTOR_ADMIN";

/// Cure if the TLS handshake fails.
pub(super) const TRUST: &str = "name the authorities of its certificate with --admin-ca or CONDUCTOR_ADMIN_CA, or write http:// if it has no [server.admin-tls]";
/// Cure if the certificate is that of an authority. A self-signed certificate of `openssl req -x509` is one by default.
pub(super) const NOT_A_SERVER: &str = "its certificate is that of an authority (CA:TRUE), which no server may have: make one with basicConstraints=CA:FALSE";
/// Cure if a plain request gets an answer that is not HTTP.
pub(super) const SECURE: &str = "if it has [server.admin-tls], write https:// before its address";

fn hint(status: StatusCode, page: &Value) -> String {
    match status {
        StatusCode::UNAUTHORIZED => format!("; set {ADMIN_API_KEY}, or name a file with --admin-key-file"),
        // The listener of clients has `/status`, and no other page of an operator.
        StatusCode::NOT_FOUND if page["error"]["code"] == "unknown_path" => {
            format!("; is that the listener of the clients? {ADDRESS}")
        }
        _ => String::new(),
    }
}

impl RemoteError {
    /// Returns whether no router was reached.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Timeout { .. })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_listener_without_admin_pages_is_answered_with_the_name_of_the_other_one() {
        let refused = |code: &str| RemoteError::Refused {
            router: "http://a:8080".to_owned(),
            status: StatusCode::NOT_FOUND,
            message: "unknown path `/admin/reload`".to_owned(),
            page: Box::new(json!({ "error": { "code": code } })),
        };
        assert!(refused("unknown_path").to_string().contains("--admin"));
        assert!(!refused("policy_not_found").to_string().contains("--admin"));
    }
}
