//! Catalog of a pool: a table from model names to the members that serve them, rebuilt when a member's list changes.
//!
//! A request loads it once, at its arrival. This is the second `ArcSwap` of the request path, besides the snapshot's.
//! Lists change without the configuration, and a snapshot for each change would rebuild every pool, route and policy.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use inference_api::ModelNames;
use tokio::sync::Semaphore;

use super::served::ServedModel;
use crate::fleet::pool::{Member, WorkerPool};

/// LoRA adapter that the configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterSpec {
    /// Name of the adapter in requests.
    pub name: Box<str>,
    /// Names of the pool's workers that serve it, whether they list it or not.
    pub workers: Vec<Box<str>>,
}

/// Table of the members of a pool that serve each model.
#[derive(Debug)]
pub(crate) struct ModelCatalog {
    current: ArcSwap<Entries>,
    /// Adapters that the configuration names.
    adapters: Box<[AdapterSpec]>,
    /// Set if lists count. Otherwise members without `models` serve everything.
    learns: bool,
    /// Lock that is held while entries are made, and never across an await. It keeps older ones from replacing newer
    /// ones.
    writer: Mutex<()>,
    /// Semaphore that lets one request at a time query all members.
    pub(super) query_permit: Semaphore,
    /// Time of the last such query.
    pub(super) queried_at: Mutex<Option<Instant>>,
}

/// Entries of the table.
#[derive(Debug, Default)]
struct Entries {
    /// Versions of the lists that the table was made of, member by member.
    versions: Vec<u64>,
    by_name: HashMap<Box<str>, Arc<ServedModel>>,
    /// Members that may serve anything, for names that are in no list.
    others: Arc<ServedModel>,
    /// Members without `models`, which answer with what they have: for requests that name no model.
    unnamed: Arc<ServedModel>,
}

impl ModelCatalog {
    pub(crate) fn new(members: &[Member], adapters: Vec<AdapterSpec>, learns: bool) -> Self {
        let catalog = Self {
            current: ArcSwap::from_pointee(Entries::default()),
            adapters: adapters.into(),
            learns,
            writer: Mutex::new(()),
            query_permit: Semaphore::new(1),
            queried_at: Mutex::default(),
        };
        catalog.renew(members);
        catalog
    }

    /// Returns the members that serve a model.
    pub(crate) fn find(&self, model: &str) -> Arc<ServedModel> {
        Arc::clone(self.current.load().find(model))
    }

    /// Returns `true` if the configuration or a member's list has this name.
    pub(crate) fn has_name(&self, model: &str) -> bool {
        self.current.load().by_name.contains_key(model)
    }

    /// Returns the adapters that the configuration names.
    pub(crate) fn adapters(&self) -> &[AdapterSpec] {
        &self.adapters
    }

    /// Returns `true` if the configuration names such an adapter.
    pub(crate) fn is_configured(&self, adapter: &str) -> bool {
        self.adapters.iter().any(|known| *known.name == *adapter)
    }

    /// Rebuilds the table if a list has changed since.
    pub(crate) fn renew(&self, members: &[Member]) {
        let is_current = |entries: &Entries| {
            let versions = members.iter().map(|member| member.link.models.version());
            entries.versions.iter().copied().eq(versions)
        };
        if !members.is_empty() && is_current(&self.current.load()) {
            return;
        }
        // Entries are whole values, whatever a panic elsewhere did.
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if !members.is_empty() && is_current(&self.current.load()) {
            return;
        }
        self.current.store(Arc::new(self.entries(members)));
    }

    fn entries(&self, members: &[Member]) -> Entries {
        // The versions are read before the lists. If a list changes meanwhile, the table is rebuilt once more.
        let versions = members
            .iter()
            .map(|member| member.link.models.version())
            .collect();
        let mut table = Table {
            by_name: HashMap::new(),
            others: ServedModel::of(members.len()),
            unnamed: ServedModel::of(members.len()),
            members: members.len(),
        };
        let lists = members
            .iter()
            .map(|member| member.link.models.names().filter(|_| self.learns));
        let lists: Vec<Option<Arc<ModelNames>>> = lists.collect();
        for (at, (member, list)) in members.iter().zip(&lists).enumerate() {
            table.add(at, &member.worker.spec().models, list.as_deref());
        }
        table.add_configured(members, &self.adapters);
        table.name_adapters(&lists, &self.adapters);
        table.finish(versions)
    }
}

impl WorkerPool {
    /// Updates the catalog with the present lists of its members.
    pub(crate) fn renew_catalog(&self) {
        self.catalog.renew(&self.members);
    }
}

impl Entries {
    fn find(&self, model: &str) -> &Arc<ServedModel> {
        if let Some(served) = self.by_name.get(model) {
            return served;
        }
        if model.is_empty() {
            return &self.unnamed;
        }
        // SGLang takes an adapter by its base model's name and its own.
        if let Some((base, adapter)) = model.split_once(':')
            && let Some(served) = self.by_name.get(adapter.trim())
            && served.parents.iter().any(|parent| **parent == *base.trim())
        {
            return served;
        }
        &self.others
    }
}

/// Builder of a table.
struct Table {
    by_name: HashMap<Box<str>, ServedModel>,
    others: ServedModel,
    unnamed: ServedModel,
    members: usize,
}

impl Table {
    fn add(&mut self, at: usize, models: &[Box<str>], list: Option<&ModelNames>) {
        if !models.is_empty() {
            // The configuration takes precedence.
            for model in models {
                self.entry(model).add(at);
            }
            return;
        }
        self.unnamed.add(at);
        match list {
            Some(names) => names.keys().for_each(|name| self.entry(name).add(at)),
            None => self.others.add(at),
        }
    }

    fn entry(&mut self, name: &str) -> &mut ServedModel {
        if !self.by_name.contains_key(name) {
            self.by_name.insert(name.into(), ServedModel::of(self.members));
        }
        self.by_name.get_mut(name).expect("it was just added")
    }

    /// Adds the adapters that the configuration names. A member without `models` serves them, listed or not.
    fn add_configured(&mut self, members: &[Member], adapters: &[AdapterSpec]) {
        for adapter in adapters {
            for (at, member) in members.iter().enumerate() {
                let spec = member.worker.spec();
                if spec.models.is_empty() && adapter.workers.contains(&spec.name) {
                    self.entry(&adapter.name).add(at);
                }
            }
        }
    }

    /// Marks the names that are adapters. A name that only some members list as an adapter counts as one, so that no
    /// block of another model is matched.
    fn name_adapters(&mut self, lists: &[Option<Arc<ModelNames>>], configured: &[AdapterSpec]) {
        for (at, names) in lists.iter().enumerate() {
            for (name, parent) in names.iter().flat_map(|names| names.iter()) {
                if let (Some(parent), Some(served)) = (parent, self.by_name.get_mut(name))
                    && served.has(at)
                {
                    served.adapter = Some(name.clone());
                    if !served.parents.contains(parent) {
                        served.parents.push(parent.clone());
                    }
                }
            }
        }
        for adapter in configured {
            self.entry(&adapter.name).adapter = Some(adapter.name.clone());
        }
    }

    fn finish(self, versions: Vec<u64>) -> Entries {
        // Members that may serve any model may serve the models that others list.
        let all = |mut served: ServedModel| {
            let others = (0..self.members).filter(|at| self.others.has(*at));
            others.for_each(|at| served.add(at));
            Arc::new(served)
        };
        let by_name = self.by_name.into_iter();
        Entries {
            versions,
            by_name: by_name.map(|(name, served)| (name, all(served))).collect(),
            others: Arc::new(self.others.clone()),
            unnamed: Arc::new(self.unnamed),
        }
    }
}
