//! The PEM files that a configuration names, read where it says they are. Keys are in no message and no log.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use conductor_config::{Config, PoolConfig, PoolTlsConfig, ServerTlsConfig};
use proxy::{ServerTls, ServerTlsParts, TlsError, WorkerTls, WorkerTlsParts};
use sha2::{Digest, Sha256};
use thiserror::Error;
use tracing::warn;

use crate::config_source::ConfigSource;
use crate::policy_library::chain;

/// Most bytes of a file that are read: a store of all the authorities of the web has 200 KiB.
const LONGEST: u64 = 4 << 20;

/// Everything TLS of a configuration. Two are equal where the files' bytes are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Certificates {
    /// What clients are shown.
    pub(crate) server: Option<Arc<ServerTls>>,
    /// Of the pools that say how.
    pools: HashMap<String, Arc<WorkerTls>>,
    /// Of all the bytes it was made of, and what they are for.
    digest: [u8; 32],
}

impl PartialEq for Certificates {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Certificates {}

/// A certificate, its key or an authority cannot be used.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// The file cannot be read.
    #[error("failed to read {what} from the file `{}`", path.display())]
    File {
        /// What is in it.
        what: String,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The files were read and are no good.
    #[error("failed to set up {what}")]
    Tls {
        /// The table that names them.
        what: String,
        /// Why not.
        #[source]
        source: TlsError,
    },
}

impl Certificates {
    /// Reads the files that a configuration names.
    ///
    /// # Errors
    /// [`CertificateError`] for the first that is no good.
    pub(crate) fn read(config: &Config, source: &ConfigSource) -> Result<Self, CertificateError> {
        let mut reader = Reader {
            source,
            digest: Sha256::new(),
        };
        let server = config
            .server
            .tls
            .as_ref()
            .map(|tls| server(tls, &mut reader))
            .transpose()?;
        let mut pools = HashMap::new();
        for pool in &config.pools {
            if let Some(tls) = &pool.tls {
                let what = format!("`[pools.{}.tls]`", pool.name);
                pools.insert(pool.name.clone(), worker(tls, what, &mut reader)?);
            }
        }
        Ok(Self {
            server,
            pools,
            digest: reader.digest.finalize().into(),
        })
    }

    /// The files that a configuration names.
    pub(crate) fn files(config: &Config, source: &ConfigSource) -> Vec<PathBuf> {
        let of_server = config.server.tls.iter().flat_map(|tls| {
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
        of_server
            .chain(of_pools)
            .map(|path| source.resolve(path))
            .collect()
    }

    /// How connections to a pool's workers begin, where some are behind `https://`.
    pub(crate) fn of_pool(&self, pool: &PoolConfig) -> Option<Arc<WorkerTls>> {
        if let Some(tls) = self.pools.get(&pool.name) {
            return Some(Arc::clone(tls));
        }
        let mut urls = pool.workers.iter().map(|worker| &worker.url);
        if urls.any(|url| url.starts_with("https://")) {
            return of_the_system();
        }
        None
    }
}

fn server(tls: &ServerTlsConfig, reader: &mut Reader<'_>) -> Result<Arc<ServerTls>, CertificateError> {
    let certificate = reader.read(&tls.cert, "`server.tls.cert`")?;
    let key = reader.read(&tls.key, "`server.tls.key`")?;
    let ca = tls.client_ca.as_ref();
    let ca = ca
        .map(|path| reader.read(path, "`server.tls.client-ca`"))
        .transpose()?;
    let made = ServerTls::new(ServerTlsParts {
        certificate: &certificate,
        key: &key,
        client_authorities: ca.as_deref(),
    });
    made.map(Arc::new).map_err(|source| CertificateError::Tls {
        what: "`[server.tls]`".to_owned(),
        source,
    })
}

fn worker(
    tls: &PoolTlsConfig,
    what: String,
    reader: &mut Reader<'_>,
) -> Result<Arc<WorkerTls>, CertificateError> {
    // Names are not in the files.
    reader.digest.update(format!("{what}{:?}", tls.server_name));
    let ca = tls
        .ca
        .as_ref()
        .map(|path| reader.read(path, &format!("`ca` of {what}")));
    let ca = ca.transpose()?;
    let identity = match &tls.identity {
        Some((cert, key)) => Some((
            reader.read(cert, &format!("`cert` of {what}"))?,
            reader.read(key, &format!("`key` of {what}"))?,
        )),
        None => None,
    };
    let made = WorkerTls::new(WorkerTlsParts {
        authorities: ca.as_deref(),
        identity: identity
            .as_ref()
            .map(|(cert, key)| (cert.as_slice(), key.as_slice())),
        server_name: tls.server_name.as_deref(),
    });
    made.map(Arc::new)
        .map_err(|source| CertificateError::Tls { what, source })
}

/// For pools that say nothing of it. The system's authorities are read once.
fn of_the_system() -> Option<Arc<WorkerTls>> {
    static TRUST: OnceLock<Option<Arc<WorkerTls>>> = OnceLock::new();
    let made = TRUST.get_or_init(|| match WorkerTls::new(WorkerTlsParts::default()) {
        Ok(tls) => Some(Arc::new(tls)),
        Err(error) => {
            warn!(
                error = chain(&error),
                "no worker behind https can be trusted without `ca` in its pool's [tls]"
            );
            None
        }
    });
    made.clone()
}

/// Reads files, and digests what it read.
struct Reader<'a> {
    source: &'a ConfigSource,
    digest: Sha256,
}

impl Reader<'_> {
    fn read(&mut self, path: &Path, what: &str) -> Result<Vec<u8>, CertificateError> {
        let path = self.source.resolve(path);
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
        if let Err(source) = read {
            return Err(CertificateError::File {
                what: what.to_owned(),
                path,
                source,
            });
        }
        self.digest.update(what);
        self.digest.update((bytes.len() as u64).to_le_bytes());
        self.digest.update(&bytes);
        Ok(bytes)
    }
}
