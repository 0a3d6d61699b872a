//! Keys that a configuration names, from files or the environment. No message and no log has a key.

mod read;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;

use conductor_config::{
    ApiKey as ConfiguredKey, AuthorizationConfig, ClientConfig, Code, Config, Diagnostic, DiscoveryConfig,
    KeyPlace, KeySource, Mark, PoolConfig,
};
use http::header::{HeaderMap, InvalidHeaderValue};
use indexer_api::ApiKey;
use kv_feed::CurveKeys;
use proxy::{Authorization, KeyHash};
use thiserror::Error;

use local_files::regular_file::MEND_FILE;
use local_files::{ADMIN_API_KEY, ConfigSource};
use observability::error_chain;

use self::read::token;

/// Secret key. No output shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Box<str>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// Makes a key of its text.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self(key.into())
    }

    /// Returns the key itself, to be compared or sent.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the key for comparison with requests.
    #[must_use]
    pub fn to_sent(&self) -> ApiKey {
        ApiKey::new(&self.0)
    }
}

/// Every key of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// Admin key; without one, clients may not change the fleet over HTTP.
    pub admin: Option<Key>,
    /// Key of the indexer's clients; without one, all are answered.
    pub indexer: Option<Key>,
    /// Keys of the pools whose workers get a key of the router's.
    pools: HashMap<String, Authorization>,
    /// Keys of the pools whose event publishers are CURVE servers.
    curve: HashMap<String, CurveKeys>,
    /// Hashes of the clients' keys that are outside the configuration.
    clients: HashMap<String, KeyHash>,
    /// Headers of the exports of traces.
    traces: HeaderMap,
    /// Tokens of the sources of workers.
    sources: HashMap<String, Authorization>,
}

/// Error of a key.
#[derive(Debug, Error)]
enum KeyError {
    /// The environment variable is not there.
    #[error("failed to read {what}: the environment variable `{name}` {why}")]
    Env {
        /// Owner of the key.
        what: String,
        /// The variable.
        name: String,
        /// Problem of the key.
        why: &'static str,
    },
    /// The file cannot be used.
    #[error("failed to read {what} from the file `{}`", path.display())]
    File {
        /// Owner of the key.
        what: String,
        /// The file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// Two clients have the same.
    #[error("failed to use {what}: another client has the same key")]
    Shared {
        /// Owner of the key.
        what: String,
    },
    /// The admin key is missing.
    #[error(
        "failed to protect the admin pages: `server.admin-key-for-reads` needs `server.admin-api-key`, or {ADMIN_API_KEY} in \
         the environment"
    )]
    NoAdminKey,
    /// The key is not a key of a CURVE socket.
    #[error("failed to use {what}: it is not a secret key in Z85, which has 40 characters")]
    Curve {
        /// Owner of the key.
        what: String,
    },
    /// The key has characters that cannot be sent.
    #[error("failed to use {what}: no header can carry it")]
    Header {
        /// Owner of the key.
        what: String,
        /// Error of the header, without the key.
        #[source]
        source: InvalidHeaderValue,
    },
}

/// Error of an unavailable key.
#[derive(Debug)]
struct KeyProblem {
    error: KeyError,
    /// Place in the configuration, if it names the key.
    at: Option<Box<Mark>>,
}

impl Keys {
    /// Reads the keys that a configuration names.
    ///
    /// # Errors
    /// A diagnostic for every unavailable key.
    pub fn read(config: &Config, source: &ConfigSource) -> Result<Self, Vec<Diagnostic>> {
        let read = Self::read_from(config, source, |name| std::env::var_os(name));
        read.map_err(|problems| problems.into_iter().map(KeyProblem::of_router).collect())
    }

    /// Reads the keys that are available, for a check: the others are in its [`problems`](Self::problems).
    #[must_use]
    pub fn present(config: &Config, source: &ConfigSource) -> Self {
        Self::survey(config, source, |name| std::env::var_os(name)).0
    }

    /// Returns a diagnostic for every unavailable key, for a check, which seldom runs as the user that runs the router.
    #[must_use]
    pub fn problems(config: &Config, source: &ConfigSource) -> Vec<Diagnostic> {
        let (_, problems) = Self::survey(config, source, |name| std::env::var_os(name));
        problems.into_iter().map(KeyProblem::of_check).collect()
    }

    /// Returns the files that keys of a configuration are in.
    #[must_use]
    pub fn files(config: &Config, source: &ConfigSource) -> Vec<PathBuf> {
        let of_pools = config.pools.iter().filter_map(|pool| match &pool.authorization {
            AuthorizationConfig::Key(place) => Some(place),
            AuthorizationConfig::Pass | AuthorizationConfig::Drop => None,
        });
        let of_clients = config.clients.iter().filter_map(|client| client.key.as_ref());
        let curve = config.pools.iter().filter_map(|pool| pool.events.curve.as_ref());
        let of_indexer = config.indexer.api_key.iter().filter_map(|key| match key {
            ConfiguredKey::Place(place) => Some(place),
            ConfiguredKey::Text(_) => None,
        });
        let places = config
            .server
            .admin_api_key
            .iter()
            .chain(of_indexer)
            .chain(of_pools)
            .chain(of_clients)
            .chain(curve.map(|curve| &curve.client))
            .chain(
                config
                    .traces
                    .iter()
                    .flat_map(|traces| &traces.headers)
                    .map(|header| &header.value),
            );
        let places = places.chain(
            config
                .discovery
                .iter()
                .filter_map(|source| token(source).map(|(_, key)| key)),
        );
        let files = places.filter_map(|key| match &key.place {
            KeyPlace::File(path) => Some(source.resolve(path)),
            KeyPlace::Env(_) => None,
        });
        files.collect()
    }

    fn read_from(
        config: &Config,
        source: &ConfigSource,
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Vec<KeyProblem>> {
        let (keys, problems) = Self::survey(config, source, env);
        match problems.is_empty() {
            true => Ok(keys),
            false => Err(problems),
        }
    }

    /// Returns the hashes of a client's keys, in a configuration that these were read for.
    pub fn of_client(&self, client: &ClientConfig) -> impl Iterator<Item = KeyHash> {
        let listed = client.key_hashes.iter().map(|hash| KeyHash::from(hash.0));
        listed.chain(self.clients.get(&client.name).copied())
    }

    /// Returns the headers of the exports of traces.
    #[must_use]
    pub fn trace_headers(&self) -> &HeaderMap {
        &self.traces
    }

    /// Returns the token of a source of workers in this configuration. `None` where it names none.
    #[must_use]
    pub fn source(&self, source: &DiscoveryConfig) -> Option<Authorization> {
        self.sources.get(&source.name).cloned()
    }

    /// Returns the keys of the pool's event publishers. `None` where those are open.
    #[must_use]
    pub fn curve(&self, pool: &PoolConfig) -> Option<CurveKeys> {
        self.curve.get(&pool.name).cloned()
    }

    /// Returns true if the keys of all workers' pages and event publishers are those of `other`.
    pub(crate) fn has_same_feeds(&self, other: &Self) -> bool {
        self.pools == other.pools && self.curve == other.curve
    }

    /// Returns the handling of a client's `Authorization` in a pool of this configuration.
    #[must_use]
    pub fn authorization(&self, pool: &PoolConfig) -> Authorization {
        match &pool.authorization {
            AuthorizationConfig::Pass => Authorization::Pass,
            // A client's key is never passed to workers that are to get another.
            AuthorizationConfig::Drop => Authorization::Drop,
            AuthorizationConfig::Key(_) => self.pools.get(&pool.name).cloned().unwrap_or(Authorization::Drop),
        }
    }
}

impl KeyProblem {
    fn of(key: &KeySource, error: KeyError) -> Self {
        let at = Some(Box::new(key.at.clone()));
        Self { error, at }
    }

    /// Returns the diagnostic of a check.
    fn of_check(self) -> Diagnostic {
        let (code, help) = match &self.error {
            KeyError::Env { .. } | KeyError::NoAdminKey => (
                Code::KeyNotHere,
                "make sure that it exists where the router runs, which does not start without it",
            ),
            KeyError::File { .. }
            | KeyError::Shared { .. }
            | KeyError::Curve { .. }
            | KeyError::Header { .. } => (Code::KeyUnavailable, MEND_FILE),
        };
        self.diagnostic(code, help)
    }

    /// Returns the diagnostic of the router, for which each unavailable key is an error.
    fn of_router(self) -> Diagnostic {
        let help = match &self.error {
            KeyError::Env { .. } => {
                "set the variable and start the router again, or name a file, which is read again when it changes"
            }
            KeyError::NoAdminKey => "name a file or a variable with the key",
            KeyError::File { .. }
            | KeyError::Shared { .. }
            | KeyError::Curve { .. }
            | KeyError::Header { .. } => MEND_FILE,
        };
        self.diagnostic(Code::KeyUnavailable, help)
    }

    fn diagnostic(self, code: Code, help: &str) -> Diagnostic {
        let at = self.at.map_or_else(Mark::beginning, |at| *at);
        Diagnostic::new(code, &at, error_chain(&self.error), Some(help.to_owned()))
    }
}

#[cfg(test)]
mod tests;
