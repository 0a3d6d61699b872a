//! Instances that differ from the file, as routers of one fleet share them: the absolute state of each.

use std::collections::BTreeMap;

use conductor_config::{Config, KvEvents, WorkerConfig};
use routing::Role;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Ended, Overlay, Overlays, entries, entry, takes_a_name};

/// Bytes of the hash of an entry.
const DIGEST: usize = 16;

/// State of an instance that a router changed over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SharedInstance {
    /// URL.
    pub url: String,
    /// Name of the pool.
    pub pool: String,
    /// Text of the file's entry at that router; `None` if its file has none.
    pub file: Option<String>,
    /// Active worker; `None` if it is removed.
    pub now: Option<SharedWorker>,
}

/// Worker of a shared instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SharedWorker {
    name: String,
    role: String,
    bootstrap: Option<String>,
    drain: bool,
}

/// Reason for which a shared state is not that of this router.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotShared {
    /// The file of this router differs from that of the other one.
    #[error("the configuration file of this router has other settings for it")]
    OtherFile,
    /// The state cannot be one of this router.
    #[error("it cannot be applied here: {0}")]
    Invalid(&'static str),
}

impl Ended {
    /// Returns the URL if the file's entry came, went or changed since the overlay was made: routers with the same file
    /// must not take the overlay's state up again.
    #[must_use]
    pub fn url_with_new_entry(&self, file: &Config) -> Option<&str> {
        let is_same = self.overlay.has_same_entry(file);
        (!is_same).then(|| &*self.overlay.worker().url)
    }
}

impl Overlays {
    /// Returns the state of an instance, for the other routers. `file`: the configuration without the overlays.
    #[must_use]
    pub fn share(&self, file: &Config, url: &str) -> Option<SharedInstance> {
        let of_file = entry(file, url);
        let (pool, now) = match (self.of(url), of_file) {
            (Some(overlay), _) => (overlay.pool.clone(), overlay.now.clone()),
            (None, Some((pool, worker))) => (pool.name.clone(), Some(worker.clone())),
            (None, None) => (String::new(), None),
        };
        let shared = |worker: WorkerConfig| SharedWorker {
            name: worker.name,
            role: worker.role.as_str().to_owned(),
            bootstrap: worker.bootstrap,
            drain: worker.drain,
        };
        Some(SharedInstance {
            url: url.to_owned(),
            pool,
            file: of_file.map(|(pool, worker)| entry_text(&pool.name, worker)),
            now: now.map(shared),
        })
    }

    /// Returns the overlays with the state that another router shares.
    ///
    /// # Errors
    /// [`NotShared`] if the state is not one of this router.
    pub fn adopt(&self, file: &Config, shared: &SharedInstance) -> Result<Self, NotShared> {
        let url = &shared.url;
        let of_file = entry(file, url);
        if shared.file.is_none() && shared.now.is_none() && of_file.is_some() {
            // The other router's file has no such instance. Here the file decides: an earlier decision ends.
            return Ok(self.without_instance(url));
        }
        if of_file.map(|(pool, worker)| entry_text(&pool.name, worker)) != shared.file {
            return Err(NotShared::OtherFile);
        }
        let Some(now) = &shared.now else {
            return match of_file {
                Some((pool, worker)) => self.adopted(Overlay {
                    pool: pool.name.clone(),
                    file: Some(worker.clone()),
                    now: None,
                }),
                None => Ok(self.without_instance(url)),
            };
        };
        let pool = file.pools.iter().find(|pool| pool.name == shared.pool);
        let pool = pool.ok_or(NotShared::Invalid("there is no such pool"))?;
        let mut roles = [Role::Prefill, Role::Decode, Role::Mixed].into_iter();
        let role = roles.find(|role| role.as_str() == now.role);
        let role = role.ok_or(NotShared::Invalid("its role is unknown"))?;
        if role != Role::Mixed && pool.pd.is_none() {
            return Err(NotShared::Invalid("its pool splits no requests"));
        }
        conductor_config::check_worker_name(&now.name)
            .map_err(|_| NotShared::Invalid("its name is invalid"))?;
        conductor_config::worker_address(url).map_err(|_| NotShared::Invalid("its address is invalid"))?;
        let bootstrap = now.bootstrap.as_deref().map(conductor_config::bootstrap_address);
        if bootstrap.is_some_and(|address| address.is_err()) {
            return Err(NotShared::Invalid("its bootstrap server is invalid"));
        }
        let known = self.of(url).and_then(|overlay| overlay.now.as_ref());
        let known = known.or(of_file.map(|(_, worker)| worker));
        let worker = WorkerConfig {
            name: now.name.clone(),
            role,
            bootstrap: now.bootstrap.clone(),
            drain: now.drain,
            ..known.cloned().unwrap_or_else(|| plain(url))
        };
        let added = self.all.iter().filter_map(|overlay| overlay.now.as_ref());
        if takes_a_name(&worker, entries(file).chain(added)) {
            return Err(NotShared::Invalid("its name is another worker's"));
        }
        self.adopted(Overlay {
            pool: pool.name.clone(),
            file: of_file.map(|(_, worker)| worker.clone()),
            now: Some(worker),
        })
    }

    fn adopted(&self, overlay: Overlay) -> Result<Self, NotShared> {
        self.with(overlay)
            .map_err(|_| NotShared::Invalid("too many instances differ from the file"))
    }

    fn without_instance(&self, url: &str) -> Self {
        let mut all = self.all.clone();
        all.retain(|overlay| !overlay.is_of(url));
        Self { all, ..self.clone() }
    }
}

/// Returns what must be equal at two routers for a state of an instance to be meant for both: the whole entry, since a
/// changed one is newer than the state.
fn entry_text(pool: &str, worker: &WorkerConfig) -> String {
    let WorkerConfig {
        name,
        url: _,
        role,
        models,
        adapters,
        weight,
        drain,
        labels,
        bootstrap,
        data_parallel,
        kv_events,
    } = worker;
    let rest =
        format!("{models:?} {adapters:?} {weight} {labels:?} {bootstrap:?} {data_parallel:?} {kv_events:?}");
    let digest = routing::hex(&Sha256::digest(rest)[..DIGEST]);
    format!("{pool} {name} {} {drain} {digest}", role.as_str())
}

/// Returns a worker with nothing but its URL.
fn plain(url: &str) -> WorkerConfig {
    WorkerConfig {
        name: String::new(),
        url: url.to_owned(),
        role: Role::Mixed,
        models: Vec::new(),
        adapters: Vec::new(),
        weight: 1.0,
        drain: false,
        labels: BTreeMap::new(),
        bootstrap: None,
        data_parallel: None,
        kv_events: KvEvents::Auto,
    }
}
