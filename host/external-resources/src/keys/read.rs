//! Readers of the keys that a configuration names: variables and files.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use conductor_config::{
    ApiKey as ConfiguredKey, AuthorizationConfig, Config, CurveConfig, DiscoveryConfig, DiscoveryPlace,
    KeyPlace, KeySource, z85_key,
};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use kv_feed::CurveKeys;
use local_files::regular_file::{read_bounded, warn_of_readers};
use local_files::{ADMIN_API_KEY, ConfigSource};
use proxy::{Authorization, KeyHash};

use super::{Key, KeyError, KeyProblem, Keys};

/// Most bytes that a key's file may have.
const LONGEST: u64 = 64 << 10;

impl Keys {
    /// Reads all keys, with the errors of the unavailable ones.
    pub(super) fn survey(
        config: &Config,
        source: &ConfigSource,
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
            None => admin_key_of(env(ADMIN_API_KEY)),
        };
        if config.server.admin_key_for_reads && admin.is_none() {
            let error = KeyError::NoAdminKey;
            problems.push(KeyProblem { error, at: None });
        }
        keys.admin = admin.and_then(|admin| keep(admin, &mut problems));
        let indexer = config.indexer.api_key.as_ref().map(|key| match key {
            ConfiguredKey::Text(key) => Ok(Key(key.trim().into())),
            ConfiguredKey::Place(key) => read(key, "`indexer.api-key`"),
        });
        keys.indexer = indexer.and_then(|indexer| keep(indexer, &mut problems));
        keys.clients = client_keys(config, read, &mut problems);
        keys.traces = trace_headers(config, read, &mut problems);
        for source in &config.discovery {
            let Some((name, key)) = token(source) else {
                continue;
            };
            let what = format!("`discovery.{}.{name}`", source.name);
            let own = keep(bearer(key, what, read), &mut problems);
            keys.sources.extend(own.map(|own| (source.name.clone(), own)));
        }
        for pool in &config.pools {
            if let AuthorizationConfig::Key(key) = &pool.authorization {
                let what = format!("`pools.{}.authorization`", pool.name);
                let own = keep(bearer(key, what, read), &mut problems);
                keys.pools.extend(own.map(|own| (pool.name.clone(), own)));
            }
            if let Some(curve) = &pool.events.curve {
                let what = format!("`pools.{}.kv-curve.client-key`", pool.name);
                let own = keep(curve_keys(curve, what, read), &mut problems);
                keys.curve.extend(own.map(|own| (pool.name.clone(), own)));
            }
        }
        (keys, problems)
    }
}

/// Returns the token of a source of workers, with its key in the configuration.
pub(super) fn token(source: &DiscoveryConfig) -> Option<(&'static str, &KeySource)> {
    match &source.place {
        DiscoveryPlace::HttpSd { bearer, .. } => bearer.as_ref().map(|key| ("bearer", key)),
        DiscoveryPlace::Kubernetes(kubernetes) => {
            kubernetes.token.as_ref().map(|key| ("kubernetes.token", key))
        }
        DiscoveryPlace::Dns { .. } | DiscoveryPlace::Srv { .. } | DiscoveryPlace::FileSd(_) => None,
    }
}

/// Reads a key as a bearer token.
fn bearer(
    key: &KeySource,
    what: String,
    read: impl Fn(&KeySource, &str) -> Result<Key, KeyProblem>,
) -> Result<Authorization, KeyProblem> {
    let own = Authorization::bearer(read(key, &what)?.reveal());
    own.map_err(|source| KeyProblem::of(key, KeyError::Header { what, source }))
}

/// Reads the keys of a pool's event publishers.
fn curve_keys(
    curve: &CurveConfig,
    what: String,
    read: impl Fn(&KeySource, &str) -> Result<Key, KeyProblem>,
) -> Result<CurveKeys, KeyProblem> {
    let own = read(&curve.client, &what)?;
    let secret = z85_key(own.reveal());
    let secret = secret.ok_or_else(|| KeyProblem::of(&curve.client, KeyError::Curve { what }))?;
    Ok(CurveKeys::new(curve.server, secret))
}

/// Returns the admin key of the variable that needs no configuration. `None` where it is not set, or empty.
fn admin_key_of(variable: Option<OsString>) -> Option<Result<Key, KeyProblem>> {
    let key = variable.filter(|key| !key.is_empty())?;
    let key = from_env(ADMIN_API_KEY, Some(key), "the admin key");
    Some(key.map_err(|error| KeyProblem { error, at: None }))
}

fn keep<T>(read: Result<T, KeyProblem>, problems: &mut Vec<KeyProblem>) -> Option<T> {
    read.map_err(|problem| problems.push(problem)).ok()
}

/// Reads the hashes of the clients' keys from outside the file. No two clients have the same key.
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

/// Reads the headers of the exports of traces.
fn trace_headers(
    config: &Config,
    read: impl Fn(&KeySource, &str) -> Result<Key, KeyProblem>,
    problems: &mut Vec<KeyProblem>,
) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for header in config.traces.iter().flat_map(|traces| &traces.headers) {
        let what = format!("`traces.headers.{}`", header.name);
        let value = read(&header.value, &what).and_then(|key| {
            let value = HeaderValue::try_from(key.reveal());
            value.map_err(|source| KeyProblem::of(&header.value, KeyError::Header { what, source }))
        });
        let name = HeaderName::try_from(&header.name);
        if let (Some(mut value), Ok(name)) = (keep(value, problems), name) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
    headers
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
    warn_of_readers(&path, what);
    first_line(&path)
        .map(|line| Key(line.into()))
        .map_err(|source| KeyError::File {
            what: what.to_owned(),
            path,
            source,
        })
}

/// Returns the first line of a file, without the white space around it.
///
/// # Errors
/// If the file cannot be read or the line is empty.
fn first_line(path: &Path) -> io::Result<String> {
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
