//! Change of an instance over HTTP: it is added in a role, or removed.

use std::collections::BTreeMap;

use conductor_config::{Config, KvEvents, PoolConfig, WorkerConfig};
use routing::{Dialect, Role};
use thiserror::Error;

use super::{Overlay, Overlays, entries, entry, names, takes_a_name};

/// Requested change of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceChange {
    /// Add it.
    Add(Addition),
    /// Remove it.
    Remove(Removal),
    /// Drain it, or resume it.
    Drain(DrainChange),
}

/// Instance to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// `http://host:port`, as the configuration writes it.
    pub url: String,
    /// `host:port` unless given.
    pub name: Option<String>,
    /// Role of the instance.
    pub role: Role,
    /// Name of the pool; see [`choose_pool`] for `None`.
    pub pool: Option<String>,
    /// Bootstrap server. `None`: on the usual port, or unchanged.
    pub bootstrap: Option<String>,
}

/// Instance to remove. Given properties other than the URL must be true of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// `http://host:port`, as the configuration writes it.
    pub url: String,
    /// Name of the instance.
    pub name: Option<String>,
    /// Role of the instance.
    pub role: Option<Role>,
    /// Name of the pool.
    pub pool: Option<String>,
}

/// Worker to drain, or to resume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainChange {
    /// Name of the pool.
    pub pool: String,
    /// Name of the worker, or of one of its data-parallel ranks, which drain together.
    pub worker: String,
    /// `true` to drain it: it finishes its requests and gets no new ones.
    pub drains: bool,
    /// Reason that the operator gave.
    pub reason: Option<String>,
}

/// Effect of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// The instance was not there before.
    Added,
    /// The instance existed, and has another role now.
    Role,
    /// The instance was removed.
    Removed,
    /// The instance gets no new requests.
    Drained,
    /// The instance gets requests again.
    Resumed,
    /// The instance had the requested state already.
    Nothing,
}

impl Changed {
    /// Returns its name in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Role => "role-changed",
            Self::Removed => "removed",
            Self::Drained => "drained",
            Self::Resumed => "resumed",
            Self::Nothing => "unchanged",
        }
    }
}

/// Effect of a change, with the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Effect.
    pub changed: Changed,
    /// Name of the pool.
    pub pool: String,
    /// Name of the instance.
    pub name: String,
    /// URL of the instance.
    pub url: String,
    /// Role of the instance.
    pub role: Role,
}

/// Error of a change, with the possible values.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ChangeError {
    /// The pool does not exist.
    #[error("there is no pool `{pool}`: {pools}")]
    NoSuchPool {
        /// Name of the pool.
        pool: String,
        /// Pools, for the message.
        pools: String,
    },
    /// The pool has no such worker.
    #[error("the pool `{pool}` has no worker `{worker}`; /status lists its workers")]
    NoSuchWorker {
        /// Name of the pool.
        pool: String,
        /// Name of the worker.
        worker: String,
    },
    /// The pool is ambiguous.
    #[error("name the `pool` it is for: {pools}")]
    WhichPool {
        /// Pools, for the message.
        pools: String,
    },
    /// The role needs a pool with `pd`.
    #[error(
        "the pool `{pool}` has no `pd`, so that it takes mixed workers only, and no {} workers: {pools}",
        .role.as_str()
    )]
    RoleNeedsPd {
        /// Name of the pool.
        pool: String,
        /// Role of the instance.
        role: Role,
        /// Pools, for the message.
        pools: String,
    },
    /// The dialect of the pool has no bootstrap servers.
    #[error(
        "`bootstrap` is for prefill workers of a pool with the dialect mooncake-connector or sglang: {pools}"
    )]
    NoBootstrap {
        /// Pools, for the message.
        pools: String,
    },
    /// The instance is in another pool.
    #[error("`{url}` is in the pool `{pool}`, and an instance is in one pool only: remove it there first")]
    OtherPool {
        /// URL of the instance.
        url: String,
        /// Name of the pool.
        pool: String,
    },
    /// The instance has another name.
    #[error("`{url}` has the name `{name}`, which stays while it is there")]
    OtherName {
        /// URL of the instance.
        url: String,
        /// Name of the instance.
        name: String,
    },
    /// The name belongs to another worker.
    #[error("the name `{name}` is another worker's: give this one another `name`")]
    NameTaken {
        /// Name of the instance.
        name: String,
    },
    /// The instance has another role.
    #[error("`{url}` is a {} worker: leave `type` out to remove it whatever it is", .role.as_str())]
    OtherRole {
        /// URL of the instance.
        url: String,
        /// Role of the instance.
        role: Role,
    },
    /// The instance does not exist.
    #[error("there is no worker at `{url}`{}", if *.removed { " any more: it was removed before" } else { "" })]
    NotThere {
        /// URL of the instance.
        url: String,
        /// True if it was removed before.
        removed: bool,
    },
    /// There are too many changes over HTTP.
    #[error("{limit} instances differ from the configuration file, which is the limit: write them into it")]
    TooMany {
        /// Most changes.
        limit: usize,
    },
}

impl Overlays {
    /// Returns the overlays after the change, over the current configuration of the file.
    ///
    /// # Errors
    /// Reason of the refusal.
    pub fn change(&self, file: &Config, change: &InstanceChange) -> Result<(Self, Done), ChangeError> {
        match change {
            InstanceChange::Add(addition) => self.add(file, addition),
            InstanceChange::Remove(removal) => self.remove(file, removal),
            InstanceChange::Drain(drain) => self.drain(file, drain),
        }
    }

    fn add(&self, file: &Config, addition: &Addition) -> Result<(Self, Done), ChangeError> {
        let url = &addition.url;
        let of_file = entry(file, url);
        let before = self.of(url);
        // A removed one comes back as the file has it.
        let known = match (before.and_then(|before| before.now.as_ref()), of_file) {
            (Some(now), _) => Some(now),
            (None, Some((_, entry))) => Some(entry),
            (None, None) => None,
        };
        let pool = match (of_file, before) {
            (Some((pool, _)), _) => pool,
            (None, Some(before)) => find_pool(file, &before.pool)?,
            (None, None) => choose_pool(file, addition.pool.as_deref())?,
        };
        if let Some(known) = known {
            agree(
                known,
                &pool.name,
                addition.name.as_deref(),
                addition.pool.as_deref(),
            )?;
        }
        check_role(file, pool, addition)?;
        let now = match known {
            Some(known) => WorkerConfig {
                role: addition.role,
                bootstrap: addition.bootstrap.clone().or_else(|| known.bootstrap.clone()),
                ..known.clone()
            },
            None => worker(addition),
        };
        // The names of removed ones too: they may come back.
        let added = self.all.iter().filter_map(|overlay| overlay.now.as_ref());
        if takes_a_name(&now, entries(file).chain(added)) {
            return Err(ChangeError::NameTaken { name: now.name });
        }
        let is_there = match before {
            Some(before) => before.now.is_some(),
            None => of_file.is_some(),
        };
        let changed = match known {
            Some(known) if is_there && *known == now => Changed::Nothing,
            Some(_) if is_there => Changed::Role,
            _ => Changed::Added,
        };
        let done = Done::new(changed, &pool.name, &now);
        let overlay = Overlay {
            pool: pool.name.clone(),
            file: of_file.map(|(_, entry)| entry.clone()),
            now: Some(now),
        };
        Ok((self.with(overlay)?, done))
    }

    fn remove(&self, file: &Config, removal: &Removal) -> Result<(Self, Done), ChangeError> {
        let url = &removal.url;
        let of_file = entry(file, url);
        let (pool, worker) = match (self.of(url), of_file) {
            (Some(before), _) => (before.pool.as_str(), before.now.as_ref()),
            (None, Some((pool, entry))) => (pool.name.as_str(), Some(entry)),
            (None, None) => ("", None),
        };
        let worker = worker.ok_or_else(|| ChangeError::NotThere {
            url: url.clone(),
            removed: of_file.is_some(),
        })?;
        agree(worker, pool, removal.name.as_deref(), removal.pool.as_deref())?;
        if removal.role.is_some_and(|role| role != worker.role) {
            return Err(ChangeError::OtherRole {
                url: url.clone(),
                role: worker.role,
            });
        }
        let done = Done::new(Changed::Removed, pool, worker);
        let left = match of_file {
            Some((_, entry)) => self.with(Overlay {
                pool: pool.to_owned(),
                file: Some(entry.clone()),
                now: None,
            })?,
            None => self.without(url),
        };
        Ok((left, done))
    }

    fn drain(&self, file: &Config, change: &DrainChange) -> Result<(Self, Done), ChangeError> {
        find_pool(file, &change.pool)?;
        let over = self.over(file);
        let pool = find_pool(&over, &change.pool)?;
        let mut workers = pool.workers.iter();
        let known = workers.find(|worker| names(worker).any(|name| name == change.worker));
        let known = known.ok_or_else(|| ChangeError::NoSuchWorker {
            pool: pool.name.clone(),
            worker: change.worker.clone(),
        })?;
        let now = WorkerConfig {
            drain: change.drains,
            ..known.clone()
        };
        let changed = match change.drains {
            drains if drains == known.drain => Changed::Nothing,
            true => Changed::Drained,
            false => Changed::Resumed,
        };
        let done = Done::new(changed, &pool.name, &now);
        let overlay = Overlay {
            pool: pool.name.clone(),
            file: entry(file, &now.url).map(|(_, entry)| entry.clone()),
            now: Some(now),
        };
        Ok((self.with(overlay)?, done))
    }

    fn without(&self, url: &str) -> Self {
        let mut all = self.all.clone();
        all.retain(|overlay| !overlay.is_of(url));
        Self { all, ..self.clone() }
    }
}

impl Done {
    fn new(changed: Changed, pool: &str, worker: &WorkerConfig) -> Self {
        Self {
            changed,
            pool: pool.to_owned(),
            name: worker.name.clone(),
            url: worker.url.clone(),
            role: worker.role,
        }
    }

    /// Returns one sentence.
    pub fn message(&self) -> String {
        let Self { name, pool, role, .. } = self;
        let role = role.as_str();
        match self.changed {
            Changed::Added => format!("added the {role} worker `{name}` to the pool `{pool}`"),
            Changed::Role => format!("`{name}` of the pool `{pool}` is a {role} worker now"),
            Changed::Removed => {
                format!(
                    "removed the {role} worker `{name}` from the pool `{pool}`; its requests under way end there"
                )
            }
            Changed::Drained => {
                format!(
                    "draining `{name}` of the pool `{pool}`: it finishes its requests and gets no new ones"
                )
            }
            Changed::Resumed => format!("`{name}` of the pool `{pool}` gets requests again"),
            Changed::Nothing => {
                format!("`{name}` of the pool `{pool}` was a {role} worker in that state already")
            }
        }
    }
}

/// Checks the properties of an existing instance.
fn agree(
    worker: &WorkerConfig,
    pool: &str,
    given_name: Option<&str>,
    given_pool: Option<&str>,
) -> Result<(), ChangeError> {
    if given_pool.is_some_and(|given| given != pool) {
        return Err(ChangeError::OtherPool {
            url: worker.url.clone(),
            pool: pool.to_owned(),
        });
    }
    if given_name.is_some_and(|given| given != worker.name) {
        return Err(ChangeError::OtherName {
            url: worker.url.clone(),
            name: worker.name.clone(),
        });
    }
    Ok(())
}

fn find_pool<'c>(file: &'c Config, name: &str) -> Result<&'c PoolConfig, ChangeError> {
    let found = file.pools.iter().find(|pool| pool.name == name);
    found.ok_or_else(|| ChangeError::NoSuchPool {
        pool: name.to_owned(),
        pools: list(file),
    })
}

/// Returns the pool that is named, else the only one that splits requests, else the only one.
fn choose_pool<'c>(file: &'c Config, name: Option<&str>) -> Result<&'c PoolConfig, ChangeError> {
    if let Some(name) = name {
        return find_pool(file, name);
    }
    let splitting: Vec<&PoolConfig> = file.pools.iter().filter(|pool| pool.pd.is_some()).collect();
    match (&splitting[..], &file.pools[..]) {
        ([only], _) => Ok(only),
        ([], [only]) => Ok(only),
        _ => Err(ChangeError::WhichPool { pools: list(file) }),
    }
}

fn check_role(file: &Config, pool: &PoolConfig, addition: &Addition) -> Result<(), ChangeError> {
    if addition.role != Role::Mixed && pool.pd.is_none() {
        return Err(ChangeError::RoleNeedsPd {
            pool: pool.name.clone(),
            role: addition.role,
            pools: list(file),
        });
    }
    let has_bootstrap = addition.role == Role::Prefill
        && pool
            .pd
            .is_some_and(|pd| pd.dialect.is_none_or(Dialect::has_bootstrap));
    if addition.bootstrap.is_some() && !has_bootstrap {
        return Err(ChangeError::NoBootstrap { pools: list(file) });
    }
    Ok(())
}

/// Returns the pools with their dialects, for an error message.
fn list(file: &Config) -> String {
    if file.pools.is_empty() {
        return "the configuration has no pools".to_owned();
    }
    let pool = |pool: &PoolConfig| match pool.pd {
        Some(pd) => format!(
            "`{}` (pd: {})",
            pool.name,
            pd.dialect.map_or("auto", Dialect::as_str)
        ),
        None => format!("`{}` (no pd)", pool.name),
    };
    let pools: Vec<String> = file.pools.iter().map(pool).collect();
    format!("the pools are {}", pools.join(", "))
}

/// Returns a worker with nothing but the properties in the request.
fn worker(addition: &Addition) -> WorkerConfig {
    let usual = addition
        .url
        .split_once("://")
        .map_or(&*addition.url, |(_, usual)| usual);
    WorkerConfig {
        name: addition.name.clone().unwrap_or_else(|| usual.to_owned()),
        url: addition.url.clone(),
        role: addition.role,
        models: Vec::new(),
        adapters: Vec::new(),
        weight: 1.0,
        drain: false,
        labels: BTreeMap::new(),
        bootstrap: addition.bootstrap.clone(),
        data_parallel: None,
        kv_events: KvEvents::Auto,
    }
}
