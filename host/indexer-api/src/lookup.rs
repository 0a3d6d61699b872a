//! Index lookup: from a query to the tokens that each engine holds. The only module that reads the index for queries.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use kv_index::{Prompt, RankMatch, SharedPrefixIndex};
use routing::{DpRank, WorkerId};

use crate::directory::{Directory, RegisteredService};
use crate::follow::{FeedFollower, FollowedSource, FollowedWorker};
use crate::profile::HashProfile;
use crate::refusal::Refusal;
use crate::request::{EngineSelection, HashKind, LookupKeys, check_rolling};
use crate::service::QueryContext;

/// Leading prompt tokens that one cache holds: cumulative, gpu <= cpu <= disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HeldTokens {
    pub(crate) gpu: u32,
    pub(crate) cpu: u32,
    /// Tokens on any tier, shared stores included.
    pub(crate) disk: u32,
}

/// Holdings of one instance, by rank.
pub(crate) type RankHoldings = BTreeMap<u16, HeldTokens>;

/// Holdings of all instances, by name.
pub(crate) type InstanceHoldings = BTreeMap<Box<str>, RankHoldings>;

/// Instances and ranks left out of an answer: their feeds are not live, so their caches are unknown.
pub(crate) type NotCurrent = BTreeMap<Box<str>, BTreeSet<u16>>;

/// Result of a lookup.
#[derive(Debug, Default)]
pub(crate) struct LookupResult {
    pub(crate) instances: InstanceHoldings,
    pub(crate) not_current: NotCurrent,
}

/// Sources of a lookup.
#[derive(Clone, Copy)]
pub(crate) struct LookupSources<'a> {
    pub(crate) index: &'a SharedPrefixIndex,
    pub(crate) directory: &'a Directory,
    /// The router's own workers.
    pub(crate) workers: &'a [FollowedWorker],
    pub(crate) follow: &'a dyn FeedFollower,
}

/// An engine to look up.
struct QueriedEngine {
    instance: Box<str>,
    /// Ranks listed in the answer even if they hold nothing.
    ranks: Box<[DpRank]>,
}

/// The engines of a query and their ids in the index.
#[derive(Default)]
pub(crate) struct EngineCandidates {
    engines: Vec<QueriedEngine>,
    workers: Vec<WorkerId>,
    /// Engines whose block names are understood: all of the context, whichever instance is queried.
    naming_engines: Vec<WorkerId>,
    not_current: NotCurrent,
    profile: Option<HashProfile>,
}

/// An engine of a context, with its known ranks.
struct ContextEngine<'a> {
    instance: &'a str,
    ranks: Box<[DpRank]>,
    worker: WorkerId,
    /// Listed in the answer even if it holds nothing.
    always: bool,
}

impl EngineCandidates {
    /// Selects the services of the context and the router's own workers that serve the model. If the context names an
    /// adapter, engines registered for the base model are included, because their events distinguish adapters.
    pub(crate) fn of(selection: &EngineSelection, sources: &LookupSources<'_>) -> Self {
        let (context, directory) = (&selection.context, sources.directory);
        let mut candidates = Self {
            profile: directory.profile(context).cloned(),
            ..Self::default()
        };
        candidates.add_services(directory.of(context), true, selection, sources.follow);
        if !context.lora.is_empty() {
            let base = QueryContext {
                lora: "".into(),
                ..context.clone()
            };
            candidates.add_services(directory.of(&base), false, selection, sources.follow);
            candidates.profile = candidates.profile.or_else(|| directory.profile(&base).cloned());
        }
        if &*context.tenant == "default" {
            let workers = sources.workers.iter();
            for known in workers.filter(|known| known.worker.serves(&context.model)) {
                let engine = ContextEngine {
                    instance: &known.worker.spec().name,
                    ranks: known.feeds.iter().map(|feed| feed.rank).collect(),
                    worker: known.worker.id(),
                    always: context.lora.is_empty() || known.worker.serves(&context.lora),
                };
                candidates.add(engine, selection, sources.follow);
            }
        }
        candidates
    }

    fn add_services(
        &mut self,
        services: &[RegisteredService],
        always: bool,
        selection: &EngineSelection,
        follow: &dyn FeedFollower,
    ) {
        for RegisteredService { service, followed } in services {
            // A store is not an engine: its blocks count for the engines that share it.
            if let FollowedSource::Engine(worker) = *followed {
                let engine = ContextEngine {
                    instance: &service.instance,
                    ranks: [service.rank].into(),
                    worker,
                    always,
                };
                self.add(engine, selection, follow);
            }
        }
    }

    /// Adds an engine to the lookup, or to the engines left out.
    fn add(&mut self, engine: ContextEngine<'_>, selection: &EngineSelection, follow: &dyn FeedFollower) {
        self.naming_engines.push(engine.worker);
        if selection
            .instance
            .as_deref()
            .is_some_and(|only| only != engine.instance)
        {
            return;
        }
        if !follow.is_current(engine.worker) {
            let ranks = self.not_current.entry(engine.instance.into()).or_default();
            ranks.extend(engine.ranks.iter().map(|rank| rank.0));
            return;
        }
        self.engines.push(QueriedEngine {
            instance: engine.instance.into(),
            ranks: if engine.always { engine.ranks } else { [].into() },
        });
        self.workers.push(engine.worker);
    }

    /// Returns the tokens that each engine holds, and the engines left out.
    pub(crate) fn query(
        self,
        index: &SharedPrefixIndex,
        selection: &EngineSelection,
        sought: &LookupKeys,
    ) -> Result<LookupResult, Refusal> {
        let context = &selection.context;
        let mut matches = Vec::new();
        match sought {
            LookupKeys::Tokens(tokens) => {
                let mut prompt =
                    Prompt::new(&tokens[..], non_empty(&context.lora), non_empty(&selection.salt));
                index.rank_matches(&mut prompt, &self.workers, &mut matches);
            }
            LookupKeys::Hashes { hashes, kind } => match kind.unwrap_or_else(|| self.default_hash_kind()) {
                HashKind::Engine => {
                    index.rank_matches_by_engine_hash(
                        hashes,
                        &self.naming_engines,
                        &self.workers,
                        &mut matches,
                    );
                }
                HashKind::Rolling => {
                    check_rolling(selection)?;
                    let size = context.block_size;
                    index.rank_matches_by_sequence_hash(hashes, size, &self.workers, &mut matches);
                }
            },
        }
        Ok(LookupResult {
            instances: self.gather(&matches),
            not_current: self.not_current,
        })
    }

    /// Returns the kind of hashes if the query does not name it: the engine's own if it registered with its profile.
    fn default_hash_kind(&self) -> HashKind {
        match self.profile {
            Some(HashProfile::Vllm { .. }) => HashKind::Engine,
            Some(HashProfile::Rolling) | None => HashKind::Rolling,
        }
    }

    fn gather(&self, matches: &[RankMatch]) -> InstanceHoldings {
        let mut instances = InstanceHoldings::new();
        let mut names: Vec<(WorkerId, &Box<str>)> = Vec::with_capacity(self.engines.len());
        for (candidate, &worker) in self.engines.iter().zip(&self.workers) {
            names.push((worker, &candidate.instance));
            for rank in &candidate.ranks {
                let ranks = instances.entry(candidate.instance.clone()).or_default();
                ranks.entry(rank.0).or_default();
            }
        }
        names.sort_unstable_by_key(|(worker, _)| *worker);
        for found in matches {
            let Ok(at) = names.binary_search_by_key(&found.holder.worker, |(worker, _)| *worker) else {
                continue;
            };
            let held = HeldTokens {
                gpu: found.found.device_tokens,
                cpu: found.found.host_tokens,
                disk: found.found.any_tokens,
            };
            // An engine that is not always listed appears only if it holds something.
            if held.disk == 0 && !instances.contains_key(names[at].1) {
                continue;
            }
            let ranks = instances.entry(names[at].1.clone()).or_default();
            match ranks.entry(found.holder.rank.0) {
                Entry::Vacant(rank) => drop(rank.insert(held)),
                Entry::Occupied(mut rank) => rank.get_mut().raise(held),
            }
        }
        instances
    }
}

fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

impl HeldTokens {
    /// Raises each tier to the larger of the two.
    pub(crate) fn raise(&mut self, other: Self) {
        self.gpu = self.gpu.max(other.gpu);
        self.cpu = self.cpu.max(other.cpu);
        self.disk = self.disk.max(other.disk);
    }
}
