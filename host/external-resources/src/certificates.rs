//! Certificates: the PEM files that a configuration names. No message and no log has a key.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use conductor_config::{
    Code, Config, Diagnostic, Mark, NamedFile, PoolConfig, PoolTlsConfig, ServerTlsConfig,
};
use proxy::{ListenersSpec, ServerTls, ServerTlsParts, TlsError, WorkerTls, WorkerTlsParts};
use sha2::{Digest, Sha256};
use thiserror::Error;
use tracing::warn;

use local_files::ConfigSource;
use local_files::regular_file::{MEND_FILE, read_bounded, warn_of_readers};
use observability::error_chain;

/// Most bytes that a file may have: a store of all the authorities of the web has 200 KiB.
pub(crate) const LONGEST: u64 = 4 << 20;

const CLIENTS: &str = "server.tls";
const ADMIN: &str = "server.admin-tls";
const INDEXER: &str = "indexer.tls";

/// Certificates and TLS settings of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certificates {
    /// TLS of the listeners that have it, by their tables' names.
    listeners: HashMap<&'static str, BuiltFrom<ServerTls>>,
    /// TLS of the pools that configure it.
    pools: HashMap<String, BuiltFrom<WorkerTls>>,
}

/// TLS settings made from a table. They are equal if the names and the bytes of the files are.
#[derive(Debug)]
struct BuiltFrom<T> {
    digest: [u8; 32],
    tls: Arc<T>,
}

impl<T> Clone for BuiltFrom<T> {
    fn clone(&self) -> Self {
        Self {
            digest: self.digest,
            tls: Arc::clone(&self.tls),
        }
    }
}

impl<T> PartialEq for BuiltFrom<T> {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl<T> Eq for BuiltFrom<T> {}

/// Error of a certificate, its key or an authority.
#[derive(Debug, Error)]
enum CertificateError {
    /// The file cannot be read.
    #[error("failed to read {what} from the file `{}`", path.display())]
    File {
        /// Content of the file.
        what: String,
        /// The file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The files were read, and their content is invalid.
    #[error("failed to set up {what}")]
    Tls {
        /// The table that names them.
        what: String,
        /// Error of the system.
        #[source]
        source: TlsError,
    },
}

/// Error with its place in the configuration.
#[derive(Debug)]
struct CertificateProblem {
    error: CertificateError,
    at: Mark,
}

impl Certificates {
    /// Reads the files that a configuration names. Unchanged files keep the values of `before`, and so the connections
    /// that began with them.
    ///
    /// # Errors
    /// A diagnostic for every unusable file.
    pub fn read(
        before: Option<&Self>,
        config: &Config,
        source: &ConfigSource,
    ) -> Result<Self, Vec<Diagnostic>> {
        let (certificates, problems) = Self::survey(before, config, source);
        match problems.is_empty() {
            true => Ok(certificates),
            false => Err(problems.iter().map(CertificateProblem::diagnostic).collect()),
        }
    }

    /// Returns a diagnostic for every unavailable file.
    #[must_use]
    pub fn problems(config: &Config, source: &ConfigSource) -> Vec<Diagnostic> {
        let (_, problems) = Self::survey(None, config, source);
        problems.iter().map(CertificateProblem::diagnostic).collect()
    }

    /// Reads all files, with the errors of the unavailable ones.
    fn survey(
        before: Option<&Self>,
        config: &Config,
        source: &ConfigSource,
    ) -> (Self, Vec<CertificateProblem>) {
        let mut problems = Vec::new();
        let mut listeners = HashMap::new();
        for (table, tls) in of_listeners(config) {
            let before = before.and_then(|before| before.listeners.get(table));
            let made = listener(tls, table, before, Reader::new(source, &mut problems));
            listeners.extend(made.map(|made| (table, made)));
        }
        let mut pools = HashMap::new();
        for pool in &config.pools {
            let Some(tls) = &pool.tls else { continue };
            let before = before.and_then(|before| before.pools.get(&pool.name));
            let table = format!("`[pools.{}.tls]`", pool.name);
            let made = worker(tls, table, before, Reader::new(source, &mut problems));
            pools.extend(made.map(|made| (pool.name.clone(), made)));
        }
        (Self { listeners, pools }, problems)
    }

    /// Returns the TLS settings of each listener.
    #[must_use]
    pub fn of_listeners(&self) -> ListenersSpec {
        let of = |table| self.listeners.get(table).map(|made| Arc::clone(&made.tls));
        ListenersSpec {
            clients: of(CLIENTS),
            admin: of(ADMIN),
            indexer: of(INDEXER),
            ..ListenersSpec::default()
        }
    }

    /// Returns the files that a configuration names.
    #[must_use]
    pub fn files(config: &Config, source: &ConfigSource) -> Vec<PathBuf> {
        let of_listeners = of_listeners(config).flat_map(|(_, tls)| {
            let own = [Some(&tls.cert), Some(&tls.key), tls.client_ca.as_ref()];
            own.into_iter().flatten()
        });
        let of_pools = config
            .pools
            .iter()
            .filter_map(|pool| pool.tls.as_ref())
            .flat_map(|tls| {
                let identity = tls.identity.iter().flat_map(|(cert, key)| [cert, key]);
                tls.ca.iter().chain(identity)
            });
        of_listeners
            .chain(of_pools)
            .map(|file| source.resolve(&file.path))
            .collect()
    }

    /// Returns true if the TLS settings of all pools are those of `other`.
    pub(crate) fn has_same_pools(&self, other: &Self) -> bool {
        self.pools == other.pools
    }

    /// Returns the TLS settings for a pool's workers, if some have `https://` URLs.
    #[must_use]
    pub fn of_pool(&self, pool: &PoolConfig) -> Option<Arc<WorkerTls>> {
        if let Some(made) = self.pools.get(&pool.name) {
            return Some(Arc::clone(&made.tls));
        }
        let mut urls = pool.workers.iter().map(|worker| &worker.url);
        if urls.any(|url| url.starts_with("https://")) {
            return of_the_system();
        }
        None
    }
}

impl CertificateProblem {
    fn diagnostic(&self) -> Diagnostic {
        let (code, help) = (Code::CertificateUnavailable, MEND_FILE.to_owned());
        Diagnostic::new(code, &self.at, error_chain(&self.error), Some(help))
    }
}

/// Returns the tables of listeners that have TLS.
fn of_listeners(config: &Config) -> impl Iterator<Item = (&'static str, &ServerTlsConfig)> {
    let tables = [
        (CLIENTS, &config.server.tls),
        (ADMIN, &config.server.admin_tls),
        (INDEXER, &config.indexer.tls),
    ];
    tables
        .into_iter()
        .filter_map(|(table, tls)| Some((table, tls.as_ref()?)))
}

fn listener(
    tls: &ServerTlsConfig,
    table: &str,
    before: Option<&BuiltFrom<ServerTls>>,
    mut reader: Reader<'_>,
) -> Option<BuiltFrom<ServerTls>> {
    let mut read = |file: &NamedFile, what: &str| reader.read(file, &format!("`{table}.{what}`"));
    let certificate = read(&tls.cert, "cert");
    let key = read(&tls.key, "key");
    let ca = tls.client_ca.as_ref().map(|file| read(file, "client-ca"));
    let (certificate, key, ca) = (certificate?, key?, whole(ca)?);
    let make = || {
        ServerTls::new(ServerTlsParts {
            certificate: &certificate,
            key: &key,
            client_authorities: ca.as_deref(),
        })
    };
    let (name, at) = (format!("`[{table}]`"), &tls.cert.at);
    reader.make(before, make, Table { name, at })
}

fn worker(
    tls: &PoolTlsConfig,
    table: String,
    before: Option<&BuiltFrom<WorkerTls>>,
    mut reader: Reader<'_>,
) -> Option<BuiltFrom<WorkerTls>> {
    // Names are not in the files.
    reader.digest.update(format!("{:?}", tls.server_name));
    let mut read = |file: &NamedFile, what: &str| reader.read(file, &format!("`{what}` of {table}"));
    let ca = tls.ca.as_ref().map(|file| read(file, "ca"));
    let identity = tls.identity.as_ref();
    let identity = identity.map(|(cert, key)| read(cert, "cert").zip(read(key, "key")));
    let (ca, identity) = (whole(ca)?, whole(identity)?);
    let make = || {
        WorkerTls::new(WorkerTlsParts {
            authorities: ca.as_deref(),
            identity: identity
                .as_ref()
                .map(|(cert, key)| (cert.as_slice(), key.as_slice())),
            server_name: tls.server_name.as_deref(),
        })
    };
    let (name, at) = (table, &tls.at);
    reader.make(before, make, Table { name, at })
}

/// Returns `None` if the item was configured and could not be read.
#[expect(
    clippy::option_option,
    reason = "an item that is not configured differs from one that is missing"
)]
fn whole<T>(read: Option<Option<T>>) -> Option<Option<T>> {
    match read {
        Some(read) => read.map(Some),
        None => Some(None),
    }
}

/// Returns the TLS settings of pools without a table. The system's authorities are read on first use.
fn of_the_system() -> Option<Arc<WorkerTls>> {
    WorkerTls::of_system()
        .inspect_err(|error| {
            warn!(
                error = error_chain(error),
                "no worker behind https can be trusted without `ca` in its pool's [tls]"
            );
        })
        .ok()
}

/// Reader of the files of one table, with a digest of their bytes.
struct Reader<'a> {
    source: &'a ConfigSource,
    digest: Sha256,
    problems: &'a mut Vec<CertificateProblem>,
}

/// Table of TLS settings, for errors.
struct Table<'a> {
    name: String,
    /// Its place in the configuration.
    at: &'a Mark,
}

impl<'a> Reader<'a> {
    fn new(source: &'a ConfigSource, problems: &'a mut Vec<CertificateProblem>) -> Self {
        Self {
            source,
            digest: Sha256::new(),
            problems,
        }
    }

    fn read(&mut self, file: &NamedFile, what: &str) -> Option<Vec<u8>> {
        let path = self.source.resolve(&file.path);
        if what.ends_with(".key`") || what.starts_with("`key`") {
            warn_of_readers(&path, what);
        }
        match read_bounded(&path, LONGEST) {
            Ok(bytes) => {
                self.digest.update(what);
                self.digest.update((bytes.len() as u64).to_le_bytes());
                self.digest.update(&bytes);
                Some(bytes)
            }
            Err(source) => {
                let what = what.to_owned();
                self.refuse(CertificateError::File { what, path, source }, &file.at);
                None
            }
        }
    }

    /// Returns the settings of these bytes, taken from `before` if they are unchanged.
    fn make<T>(
        mut self,
        before: Option<&BuiltFrom<T>>,
        make: impl FnOnce() -> Result<T, TlsError>,
        table: Table<'_>,
    ) -> Option<BuiltFrom<T>> {
        let digest = std::mem::take(&mut self.digest).finalize().into();
        if let Some(before) = before.filter(|before| before.digest == digest) {
            return Some(before.clone());
        }
        match make() {
            Ok(tls) => Some(BuiltFrom {
                digest,
                tls: Arc::new(tls),
            }),
            Err(source) => {
                let what = table.name;
                self.refuse(CertificateError::Tls { what, source }, table.at);
                None
            }
        }
    }

    fn refuse(&mut self, error: CertificateError, at: &Mark) {
        let at = at.clone();
        self.problems.push(CertificateProblem { error, at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_config::parsed;

    /// Returns the settings of a file's bytes.
    fn made(bytes: &str, before: Option<&BuiltFrom<String>>) -> BuiltFrom<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = NamedFile {
            path: folder.path().join("file"),
            at: Mark::beginning(),
        };
        std::fs::write(&file.path, bytes).unwrap();
        let (source, mut problems) = (ConfigSource::Text(String::new()), vec![]);
        let mut reader = Reader::new(&source, &mut problems);
        reader.read(&file, "a file").unwrap();
        let make = || Ok(bytes.to_owned());
        let (name, at) = (String::new(), &file.at);
        let made = reader.make(before, make, Table { name, at }).unwrap();
        assert!(problems.is_empty());
        made
    }

    #[test]
    fn settings_of_the_same_bytes_are_made_once() {
        let first = made("a", None);
        assert!(Arc::ptr_eq(&first.tls, &made("a", Some(&first)).tls));
        let other = made("b", Some(&first));
        assert!(other != first && *other.tls == "b");
    }

    #[test]
    fn pools_differ_by_the_bytes_of_their_files_and_not_by_those_of_listeners() {
        let of_pool = |digest: [u8; 32]| {
            let tls = WorkerTls::of_system().unwrap();
            let pools = HashMap::from([("a".to_owned(), BuiltFrom { digest, tls })]);
            let listeners = HashMap::new();
            Certificates { listeners, pools }
        };
        assert!(of_pool([1; 32]).has_same_pools(&of_pool([1; 32])));
        assert!(!of_pool([1; 32]).has_same_pools(&of_pool([2; 32])));
    }

    #[test]
    fn every_missing_file_is_reported_with_its_place() {
        let text = "[server.tls]\ncert = \"no.crt\"\nkey = \"no.key\"\n[pools.a]\nworkers = [{ url = \"https://a:1\" }]\n\
             [pools.a.tls]\nca = \"no.ca\"\n";
        let source = ConfigSource::Text(text.to_owned());
        let config = parsed(&source, text);
        let problems = Certificates::problems(&config, &source);
        let lines: Vec<_> = problems
            .iter()
            .map(|problem| problem.primary.location.line)
            .collect();
        assert_eq!(lines, [2, 3, 7]);
    }
}
