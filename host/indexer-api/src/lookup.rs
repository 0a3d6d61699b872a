//! From a question to what each engine holds: the one place that asks the index.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use kv_index::{Prompt, RankMatch, SharedPrefixIndex};
use routing::{DpRank, WorkerId};

use crate::directory::{Directory, Registered};
use crate::follow::{Followed, FollowedWorker};
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

/// An engine that is asked.
struct Candidate {
    instance: Box<str>,
    /// Named in the answer even where it holds nothing.
    rank: Option<DpRank>,
}

/// The engines that are asked, and under which ids the index knows them.
#[derive(Default)]
pub(crate) struct Candidates {
    named: Vec<Candidate>,
    workers: Vec<WorkerId>,
    profile: Option<HashProfile>,
}

impl Candidates {
    /// Those that a selection means: the services of its context, engines registered for the base model where it names an
    /// adapter (their events tell adapters apart), and the router's own workers that serve the model.
    pub(crate) fn of(selection: &Selection, directory: &Directory, workers: &[FollowedWorker]) -> Self {
        let context = &selection.context;
        let wanted = |instance: &str| selection.instance.as_deref().is_none_or(|only| only == instance);
        let mut candidates = Self {
            profile: directory.profile(context).cloned(),
            ..Self::default()
        };
        candidates.add_services(directory.of(context), true, wanted);
        if !context.lora.is_empty() {
            let base = Context {
                lora: "".into(),
                ..context.clone()
            };
            candidates.add_services(directory.of(&base), false, wanted);
            candidates.profile = candidates.profile.or_else(|| directory.profile(&base).cloned());
        }
        if &*context.tenant == "default" {
            let serving = workers.iter().filter(|known| known.worker.serves(&context.model));
            for known in serving {
                let always = context.lora.is_empty() || known.worker.serves(&context.lora);
                candidates.add(
                    &known.worker.spec().name,
                    always.then_some(DpRank(0)),
                    known.worker.id(),
                    wanted,
                );
            }
        }
        candidates
    }

    /// `always`: named even where they hold nothing.
    fn add_services(&mut self, services: &[Registered], always: bool, wanted: impl Fn(&str) -> bool + Copy) {
        for Registered { service, followed } in services {
            // A store is no engine: what it holds counts for those that share it.
            if let Followed::Engine(worker) = *followed {
                self.add(&service.instance, always.then_some(service.rank), worker, wanted);
            }
        }
    }

    fn add(&mut self, instance: &str, rank: Option<DpRank>, worker: WorkerId, wanted: impl Fn(&str) -> bool) {
        if wanted(instance) {
            self.named.push(Candidate {
                instance: instance.into(),
                rank,
            });
            self.workers.push(worker);
        }
    }

    /// What they hold of what is sought.
    pub(crate) fn ask(
        &self,
        index: &SharedPrefixIndex,
        selection: &Selection,
        sought: &Sought,
    ) -> Result<Instances, Refusal> {
        let context = &selection.context;
        let mut matches = Vec::new();
        match sought {
            Sought::Tokens(tokens) => {
                let mut prompt = Prompt::new(&tokens[..], given(&context.lora), given(&selection.salt));
                index.rank_matches(&mut prompt, &self.workers, &mut matches);
            }
            Sought::Hashes { hashes, kind } => match kind.unwrap_or_else(|| self.usual_kind()) {
                HashKind::Engine => index.rank_matches_by_engine_hash(hashes, &self.workers, &mut matches),
                HashKind::Rolling => {
                    check_rolling(selection)?;
                    let size = context.block_size;
                    index.rank_matches_by_sequence_hash(hashes, size, &self.workers, &mut matches);
                }
            },
        }
        Ok(self.gather(&matches))
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
            if let Some(rank) = candidate.rank {
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
