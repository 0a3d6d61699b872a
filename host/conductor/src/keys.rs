//! The keys that a configuration names, read where it says they are. They are in no message and no log.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use conductor_config::{AuthorizationConfig, ClientConfig, Config, KeyPlace, KeySource, Mark, PoolConfig};
use http::header::InvalidHeaderValue;
use proxy::{Authorization, KeyHash};
use thiserror::Error;

use crate::certificates::{CertificateError, Certificates};
use crate::config_source::ConfigSource;
use crate::regular_file::read_bounded;
use crate::tokenizers::Tokenizers;

/// Where the admin key is unless the configuration says so.
const ADMIN_API_KEY: &str = "ADMIN_API_KEY";

/// Most bytes that a key's file may have.
const LONGEST: u64 = 64 << 10;

/// A key that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key(Box<str>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    #[cfg(test)]
    pub(crate) fn of_test(key: &str) -> Self {
        Self(key.into())
    }

    /// The key itself, to be compared or sent.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

/// Every key of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    /// What whoever changes the fleet over HTTP must show; none: clients may not.
    pub(crate) admin: Option<Key>,
    /// Of the pools whose workers get a key of the router's.
    pools: HashMap<String, Authorization>,
    /// Of the clients whose key is not in the configuration: its hash, and nothing else of it.
    clients: HashMap<String, KeyHash>,
    /// What is shown and believed in TLS.
    pub(crate) certificates: Certificates,
    /// Of the models that have them; read apart from the keys, which they have nothing to do with but their time.
    pub(crate) tokenizers: Tokenizers,
}

/// A key cannot be used.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The environment variable is not there.
    #[error("failed to read {what}: the environment variable `{name}` {why}")]
    Env {
        /// Whose key.
        what: String,
        /// The variable.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The file cannot be used.
    #[error("failed to read {what} from the file `{}`", path.display())]
    File {
        /// Whose key.
        what: String,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Two clients have the same.
    #[error("failed to use {what}: another client has the same key")]
    Shared {
        /// Whose key.
        what: String,
    },
    /// A certificate, its key or an authority is no good.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// There is none to ask for.
    #[error(
        "failed to protect the admin pages: `server.admin-key-for-reads` needs `server.admin-api-key`, or {ADMIN_API_KEY} in \
         the environment"
    )]
    NoAdminKey,
    /// It has characters that cannot be sent.
    #[error("failed to use {what}: no header can carry it")]
    Header {
        /// Whose key.
        what: String,
        /// Why not; it does not show the key.
        #[source]
        source: InvalidHeaderValue,
    },
}

/// Why a key, a certificate or an authority cannot be had.
#[derive(Debug)]
pub(crate) struct KeyProblem {
    pub(crate) error: KeyError,
    /// Where the configuration names it, if it does.
    pub(crate) at: Option<Box<Mark>>,
}

impl Keys {
    /// Reads the keys that a configuration names. Certificates whose files have the bytes of `before` are those of `before`.
    ///
    /// # Errors
    /// [`KeyError`] for the first that cannot be had.
    pub(crate) fn read(
        before: Option<&Self>,
        config: &Config,
        source: &ConfigSource,
    ) -> Result<Self, KeyError> {
        Self::read_from(before, (config, source), |name| std::env::var_os(name))
    }

    /// All that [`Keys::read`] would fail for.
    pub(crate) fn problems(config: &Config, source: &ConfigSource) -> Vec<KeyProblem> {
        let (_, problems) = Self::survey(None, (config, source), |name| std::env::var_os(name));
        problems
    }

    /// The files that keys of a configuration are in.
    pub(crate) fn files(config: &Config, source: &ConfigSource) -> Vec<PathBuf> {
        let of_pools = config.pools.iter().filter_map(|pool| match &pool.authorization {
            AuthorizationConfig::Key(place) => Some(place),
            AuthorizationConfig::Pass | AuthorizationConfig::Drop => None,
        });
        let of_clients = config.clients.iter().filter_map(|client| client.key.as_ref());
        let places = config
            .server
            .admin_api_key
            .iter()
            .chain(of_pools)
            .chain(of_clients);
        let files = places.filter_map(|key| match &key.place {
            KeyPlace::File(path) => Some(source.resolve(path)),
            KeyPlace::Env(_) => None,
        });
        files.chain(Certificates::files(config, source)).collect()
    }

    fn read_from(
        before: Option<&Self>,
        named: (&Config, &ConfigSource),
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, KeyError> {
        let (keys, problems) = Self::survey(before, named, env);
        match problems.into_iter().next() {
            Some(problem) => Err(problem.error),
            None => Ok(keys),
        }
    }

    /// What can be had, and what cannot.
    fn survey(
        before: Option<&Self>,
        (config, source): (&Config, &ConfigSource),
        env: impl Fn(&str) -> Option<OsString>,
    ) -> (Self, Vec<KeyProblem>) {
        let mut keys = Self::default();
        let mut problems = Vec::new();
        let read = |key: &KeySource, what: &str| {
            let read = match &key.place {
                KeyPlace::Env(name) => from_env(name, env(name), what),
                KeyPlace::File(path) => from_file(source.resolve(path), what),
            };
            read.map_err(|error| KeyProblem::of(key, error))
        };
        let admin = match &config.server.admin_api_key {
            Some(key) => Some(read(key, "`server.admin-api-key`")),
            None => env(ADMIN_API_KEY).filter(|key| !key.is_empty()).map(|key| {
                let key = from_env(ADMIN_API_KEY, Some(key), "the admin key");
                key.map_err(|error| KeyProblem { error, at: None })
            }),
        };
        if config.server.admin_key_for_reads && admin.is_none() {
            let error = KeyError::NoAdminKey;
            problems.push(KeyProblem { error, at: None });
        }
        keys.admin = admin.and_then(|admin| keep(admin, &mut problems));
        keys.clients = client_keys(config, read, &mut problems);
        let before = before.map(|before| &before.certificates);
        keys.certificates = Certificates::read(before, (config, source), &mut problems);
        for pool in &config.pools {
            if let AuthorizationConfig::Key(key) = &pool.authorization {
                let what = format!("`pools.{}.authorization`", pool.name);
                let own = read(key, &what).and_then(|own| {
                    let own = Authorization::bearer(own.reveal());
                    own.map_err(|source| KeyProblem::of(key, KeyError::Header { what, source }))
                });
                let own = keep(own, &mut problems);
                keys.pools.extend(own.map(|own| (pool.name.clone(), own)));
            }
        }
        (keys, problems)
    }

    /// The hashes of a client's keys, in a configuration that these were read for.
    pub(crate) fn of_client(&self, client: &ClientConfig) -> impl Iterator<Item = KeyHash> {
        let listed = client.key_hashes.iter().map(|hash| KeyHash::from(hash.0));
        listed.chain(self.clients.get(&client.name).copied())
    }

    /// What becomes of a client's `Authorization` in a pool of the configuration these were read for.
    pub(crate) fn authorization(&self, pool: &PoolConfig) -> Authorization {
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
}

fn keep<T>(read: Result<T, KeyProblem>, problems: &mut Vec<KeyProblem>) -> Option<T> {
    read.map_err(|problem| problems.push(problem)).ok()
}

/// The hashes of the clients' keys that are elsewhere; no two clients have the same key.
fn client_keys(
    config: &Config,
    read: impl Fn(&KeySource, &str) -> Result<Key, KeyProblem>,
    problems: &mut Vec<KeyProblem>,
) -> HashMap<String, KeyHash> {
    let listed = config.clients.iter().flat_map(|client| &client.key_hashes);
    let mut taken: HashSet<KeyHash> = listed.map(|hash| KeyHash::from(hash.0)).collect();
    let mut keys = HashMap::new();
    for client in &config.clients {
        let Some(key) = &client.key else { continue };
        let what = format!("`clients.{}.key`", client.name);
        let hash = read(key, &what).map(|key| KeyHash::of(key.reveal().as_bytes()));
        let Some(hash) = keep(hash, problems) else {
            continue;
        };
        if taken.insert(hash) {
            keys.insert(client.name.clone(), hash);
        } else {
            problems.push(KeyProblem::of(key, KeyError::Shared { what }));
        }
    }
    keys
}

fn from_env(name: &str, value: Option<OsString>, what: &str) -> Result<Key, KeyError> {
    let missing = |why| KeyError::Env {
        what: what.to_owned(),
        name: name.to_owned(),
        why,
    };
    let value = value.ok_or_else(|| missing("is not set"))?;
    let value = value.into_string().map_err(|_| missing("is not text"))?;
    match value.trim() {
        "" => Err(missing("is empty")),
        key => Ok(Key(key.into())),
    }
}

fn from_file(path: PathBuf, what: &str) -> Result<Key, KeyError> {
    first_line(&path)
        .map(|line| Key(line.into()))
        .map_err(|source| KeyError::File {
            what: what.to_owned(),
            path,
            source,
        })
}

/// The first line of a file, without the white space around it.
///
/// # Errors
/// Where the file cannot be read or the line is empty.
pub(crate) fn first_line(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read_bounded(path, LONGEST)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text"))?;
    let line = text.lines().next().unwrap_or_default();
    match line.trim() {
        "" => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "its first line is empty",
        )),
        line => Ok(line.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, variable: Option<&str>) -> Result<Keys, KeyError> {
        let source = ConfigSource::Text(text.to_owned());
        let config = crate::reload::read(&source, text).expect("valid").config;
        Keys::read_from(None, (&config, &source), |name| {
            (name == "KEY").then_some(variable).flatten().map(OsString::from)
        })
    }

    /// A pool with this `authorization`.
    fn pool(authorization: &str) -> String {
        format!("[pools.a]\nauthorization = {authorization}\nworkers = [{{ url = \"http://a:1\" }}]\n")
    }

    #[track_caller]
    fn refused(result: Result<Keys, KeyError>, expected: &str) {
        let error = crate::policy_library::chain(&result.unwrap_err());
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_key_is_read_from_the_environment_or_a_files_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, " secret \nnot this\n").unwrap();
        let check = |text: &str| {
            let source = ConfigSource::Text(text.to_owned());
            let config = crate::reload::read(&source, text).expect("valid").config;
            let keys = read(text, Some("secret\n")).unwrap();
            let expected = Authorization::bearer("secret").unwrap();
            assert_eq!(keys.authorization(&config.pools[0]), expected);
        };
        check(&pool("{ env = \"KEY\" }"));
        check(&pool(&format!("{{ file = {path:?} }}")));
    }

    /// As sha256sum prints it of `test`.
    const HASH_OF_TEST: &str =
        "key-sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"";

    /// Two clients: what is written of their keys.
    fn clients(one: &str, other: &str) -> String {
        format!("[clients.a]\n{one}\n[clients.b]\n{other}\n") + &pool("\"drop\"")
    }

    #[test]
    fn of_a_clients_key_only_the_hash_is_kept() {
        let text = clients("key = { env = \"KEY\" }", HASH_OF_TEST);
        let source = ConfigSource::Text(text.clone());
        let config = crate::reload::read(&source, &text).expect("valid").config;
        let keys = read(&text, Some("secret")).unwrap();
        let of = |client: usize| keys.of_client(&config.clients[client]).collect::<Vec<_>>();
        assert_eq!(of(0), [KeyHash::of(b"secret")]);
        assert_eq!(of(1), [KeyHash::of(b"test")]);
        assert!(!format!("{keys:?}").contains("secret"));
    }

    #[test]
    fn no_two_clients_have_one_key() {
        let env = "key = { env = \"KEY\" }";
        refused(
            read(&clients(env, env), Some("secret")),
            "`clients.b.key`: another client",
        );
        refused(
            read(&clients(HASH_OF_TEST, env), Some("test")),
            "`clients.b.key`: another client",
        );
        assert!(read(&clients(HASH_OF_TEST, env), Some("test2")).is_ok());
        refused(read(&clients(HASH_OF_TEST, env), None), "`clients.b.key`");
    }

    #[test]
    fn pages_cannot_ask_for_a_key_that_is_not() {
        let text = "[server]\nadmin-key-for-reads = true\n".to_owned() + &pool("\"drop\"");
        refused(read(&text, None), "needs `server.admin-api-key`");
    }

    #[test]
    fn every_file_of_a_key_is_watched() {
        let text = "[server]\nadmin-api-key = { file = \"admin\" }\n[clients.a]\nkey = { file = \"a\" }\n"
            .to_owned()
            + &pool("{ file = \"engine\" }");
        let source = ConfigSource::File("/etc/c/conductor.toml".into());
        let config = crate::reload::read(&source, &text).expect("valid").config;
        let expected = ["/etc/c/admin", "/etc/c/engine", "/etc/c/a"].map(PathBuf::from);
        assert_eq!(Keys::files(&config, &source), expected);
    }

    #[test]
    fn the_administrators_key_is_apart_from_the_pools() {
        let text = "[server]\nadmin-api-key = { env = \"KEY\" }\n".to_owned() + &pool("\"drop\"");
        let keys = read(&text, Some("secret")).unwrap();
        assert_eq!(keys.admin.as_ref().map(Key::reveal), Some("secret"));
        assert!(!format!("{keys:?}").contains("secret"));
        refused(
            read(&text, None),
            "`server.admin-api-key`: the environment variable `KEY` is not set",
        );
    }

    #[test]
    fn without_a_word_of_the_configuration_the_administrators_key_is_that_of_the_seeds() {
        let admin = |value: Option<&str>| {
            let config =
                crate::reload::read(&ConfigSource::Text(String::new()), &pool("\"drop\"")).expect("valid");
            let env = |name: &str| {
                (name == ADMIN_API_KEY)
                    .then_some(value)
                    .flatten()
                    .map(OsString::from)
            };
            let keys = Keys::read_from(None, (&config.config, &ConfigSource::Text(String::new())), env);
            keys.map(|keys| keys.admin.map(|key| key.reveal().to_owned()))
        };
        assert_eq!(admin(Some("secret")).unwrap().as_deref(), Some("secret"));
        assert_eq!(admin(Some("")).unwrap(), None);
        assert_eq!(admin(None).unwrap(), None);
        assert!(admin(Some(" ")).is_err(), "it was meant to be one");
    }

    #[test]
    fn a_key_that_cannot_be_had_is_named_and_never_shown() {
        let from_env = pool("{ env = \"KEY\" }");
        let whose = "`pools.a.authorization`";
        refused(read(&from_env, None), whose);
        refused(read(&from_env, Some(" ")), "`KEY` is empty");
        refused(read(&from_env, Some("a\u{1}b")), whose);
        refused(
            read(&pool("{ file = \"/nowhere/key\" }"), None),
            "from the file `/nowhere/key`: ",
        );
        let error = read(&from_env, Some("se\u{1}cret")).unwrap_err();
        assert!(!format!("{error:?}{error}").contains("cret"));
    }
}
