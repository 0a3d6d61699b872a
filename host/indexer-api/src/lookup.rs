//! From a question to what each engine holds: the one place that asks the index.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use kv_index::{Prompt, RankMatch, SharedPrefixIndex};
use routing::{DpRank, WorkerId};

use crate::directory::{Directory, Registered};
use crate::follow::{Follow, Followed, FollowedWorker};
use crate::profile::HashProfile;
use crate::refusal::Refusal;
use crate::request::{HashKind, Selection, Sought, check_rolling};
use crate::service::Context;

/// Tokens of a prompt's beginning that one cache holds: cumulative, gpu <= cpu <= disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) gpu: u32,
    pub(crate) cpu: u32,
    /// On some tier, shared stores included.
    pub(crate) disk: u32,
}

/// What one instance holds, by rank.
pub(crate) type Ranks = BTreeMap<u16, Held>;

/// What each instance holds, by name.
pub(crate) type Instances = BTreeMap<Box<str>, Ranks>;

/// Instances and ranks that are left out of an answer: their feeds are not live, so that nobody knows what they hold.
pub(crate) type NotCurrent = BTreeMap<Box<str>, BTreeSet<u16>>;

/// What a query found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) instances: Instances,
    pub(crate) not_current: NotCurrent,
}

/// Everything that a query reads.
#[derive(Clone, Copy)]
pub(crate) struct LookupSources<'a> {
    pub(crate) index: &'a SharedPrefixIndex,
    pub(crate) directory: &'a Directory,
    /// The router's own workers.
    pub(crate) workers: &'a [FollowedWorker],
    pub(crate) follow: &'a dyn Follow,
}

/// An engine that is asked.
struct Candidate {
    instance: Box<str>,
    /// Named in the answer even where it holds nothing.
    ranks: Box<[DpRank]>,
}

/// The engines that are asked, and under which ids the index knows them.
#[derive(Default)]
pub(crate) struct Candidates {
    named: Vec<Candidate>,
    workers: Vec<WorkerId>,
    /// Engines whose block names are understood: those of the context, whichever instance is asked for.
    namers: Vec<WorkerId>,
    not_current: NotCurrent,
    profile: Option<HashProfile>,
}

/// An engine of a context: which one, and the ranks it is known to have.
struct ContextEngine<'a> {
    instance: &'a str,
    ranks: Box<[DpRank]>,
    worker: WorkerId,
    /// Whether it is named even where it holds nothing.
    always: bool,
}

impl Candidates {
    /// Selects the services of the context, engines registered for the base model where the context names an adapter (their
    /// events tell adapters apart), and the router's own workers that serve the model.
    pub(crate) fn of(selection: &Selection, sources: &LookupSources<'_>) -> Self {
        let (context, directory) = (&selection.context, sources.directory);
        let mut candidates = Self {
            profile: directory.profile(context).cloned(),
            ..Self::default()
        };
        candidates.add_services(directory.of(context), true, selection, sources.follow);
        if !context.lora.is_empty() {
            let base = Context {
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
        services: &[Registered],
        always: bool,
        selection: &Selection,
        follow: &dyn Follow,
    ) {
        for Registered { service, followed } in services {
            // A store is no engine: what it holds counts for those that share it.
            if let Followed::Engine(worker) = *followed {
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

    /// Adds an engine to those that are asked, or to those that are left out.
    fn add(&mut self, engine: ContextEngine<'_>, selection: &Selection, follow: &dyn Follow) {
        self.namers.push(engine.worker);
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
        self.named.push(Candidate {
            instance: engine.instance.into(),
            ranks: if engine.always { engine.ranks } else { [].into() },
        });
        self.workers.push(engine.worker);
    }

    /// Returns what they hold of what is sought, and which of them are left out.
    pub(crate) fn ask(
        self,
        index: &SharedPrefixIndex,
        selection: &Selection,
        sought: &Sought,
    ) -> Result<Found, Refusal> {
        let context = &selection.context;
        let mut matches = Vec::new();
        match sought {
            Sought::Tokens(tokens) => {
                let mut prompt = Prompt::new(&tokens[..], given(&context.lora), given(&selection.salt));
                index.rank_matches(&mut prompt, &self.workers, &mut matches);
            }
            Sought::Hashes { hashes, kind } => match kind.unwrap_or_else(|| self.usual_kind()) {
                HashKind::Engine => {
                    index.rank_matches_by_engine_hash(hashes, &self.namers, &self.workers, &mut matches);
                }
                HashKind::Rolling => {
                    check_rolling(selection)?;
                    let size = context.block_size;
                    index.rank_matches_by_sequence_hash(hashes, size, &self.workers, &mut matches);
                }
            },
        }
        Ok(Found {
            instances: self.gather(&matches),
            not_current: self.not_current,
        })
    }

    /// The hashes of those who registered with the engine's profile are the engine's.
    fn usual_kind(&self) -> HashKind {
        match self.profile {
            Some(HashProfile::Vllm { .. }) => HashKind::Engine,
            Some(HashProfile::Rolling) | None => HashKind::Rolling,
        }
    }

    fn gather(&self, matches: &[RankMatch]) -> Instances {
        let mut instances = Instances::new();
        let mut names: Vec<(WorkerId, &Box<str>)> = Vec::with_capacity(self.named.len());
        for (candidate, &worker) in self.named.iter().zip(&self.workers) {
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
            let held = Held {
                gpu: found.found.device_tokens,
                cpu: found.found.host_tokens,
                disk: found.found.any_tokens,
            };
            // Who is not asked for by name is there for what it holds only.
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

fn given(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

impl Held {
    /// The better of two, tier by tier.
    pub(crate) fn raise(&mut self, other: Self) {
        self.gpu = self.gpu.max(other.gpu);
        self.cpu = self.cpu.max(other.cpu);
        self.disk = self.disk.max(other.disk);
    }
}
