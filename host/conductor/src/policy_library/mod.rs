//! Every policy the configuration or the policy folder names, each with the last version that worked.
//!
//! The rule of this folder: a policy that has decided once never stops deciding because of a bad file. New versions are
//! *prepared* first, which changes nothing, and put in force by a *commit*, so that a configuration can be
//! refused as a whole. Whatever is wrong with new bytes of a policy that is in force is kept as its problem, shown and
//! counted, while its last good version serves.

mod component;
mod prepared;
mod report;

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use policy_runtime::{LoadError, PolicyEngine, PolicySettings, PolicyState, WasmPolicy};
use routing::PolicyVersions;
use thiserror::Error;
use tracing::{error, info};

pub(crate) use self::component::policies_in;
use self::component::{Digest, MAX_COMPONENT, Seen};
pub(crate) use self::prepared::{Outcome, Prepared, PreparedPolicy, Version};
pub(crate) use self::report::{PolicyReport, chain};

/// Before the next look at a file that seemed half-written.
const RETRY: Duration = Duration::from_millis(100);

/// Where a policy's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PolicySource {
    /// Embedded in the binary.
    Builtin(String),
    /// Read from a file.
    File(PathBuf),
}

/// A policy that should be there.
#[derive(Debug, Clone)]
pub(crate) struct WantedPolicy {
    /// Its name in the configuration, or its file's name in the policy folder.
    pub name: String,
    /// Its bytes.
    pub source: PolicySource,
    /// Its parameters and limits.
    pub settings: PolicySettings,
}

impl WantedPolicy {
    /// The file it is read from, where there is one.
    pub(crate) fn file(self) -> Option<PathBuf> {
        match self.source {
            PolicySource::File(path) => Some(path),
            PolicySource::Builtin(_) => None,
        }
    }
}

/// Why a version could not be used.
#[derive(Debug, Error)]
pub(crate) enum PolicyProblem {
    /// No such built-in.
    #[error("there is no built-in policy `{0}`")]
    NoBuiltin(String),
    /// The file could not be read.
    #[error("failed to read `{}`", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The file is no policy's.
    #[error("`{}` has {size} bytes, over the limit of {MAX_COMPONENT}", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// The runtime refused it.
    #[error("failed to load it")]
    Load(#[source] LoadError),
    /// The compiler has a bug that this component brings up.
    #[error("failed to compile it: the compiler panicked (its message is on stderr)")]
    Panicked,
}

impl PolicyProblem {
    /// Whether the parameters or limits are at fault, not the bytes.
    pub(crate) fn is_in_settings(&self) -> bool {
        matches!(
            self,
            Self::Load(LoadError::Params { .. } | LoadError::Memory { .. } | LoadError::Configure(_))
        )
    }
}

/// A policy that was accepted: some configuration in force names it, or it lies in the folder.
#[derive(Debug)]
struct Entry {
    source: PolicySource,
    settings: PolicySettings,
    /// None while no version ever worked.
    active: Option<Active>,
    problem: Option<String>,
    /// Versions put in force since start.
    swaps: u64,
}

#[derive(Debug, Clone)]
struct Active {
    version: Version,
    /// The state of the file when this version or a copy of it was read.
    seen: Option<Seen>,
    since: SystemTime,
}

/// The last try with bytes or settings that are not in force, so that it is not repeated at every look.
#[derive(Debug)]
struct Attempt {
    digest: Digest,
    settings: PolicySettings,
    result: Result<Arc<WasmPolicy>, Arc<PolicyProblem>>,
}

/// The library. Owned by the one thread that reloads; compiles there, never on a request's thread.
#[derive(Debug)]
pub(crate) struct PolicyLibrary {
    engine: PolicyEngine,
    entries: BTreeMap<String, Entry>,
    /// By name; one each.
    attempts: BTreeMap<String, Attempt>,
    /// By name, so that a policy's state outlives its versions.
    states: BTreeMap<String, Arc<PolicyState>>,
}

impl PolicyLibrary {
    /// An empty library.
    #[must_use]
    pub(crate) fn new(engine: PolicyEngine) -> Self {
        Self {
            engine,
            entries: BTreeMap::new(),
            attempts: BTreeMap::new(),
            states: BTreeMap::new(),
        }
    }

    /// Loads what is new or changed among `wanted`. Blocks while it compiles. What is in force stays in force.
    pub(crate) fn prepare(&mut self, wanted: Vec<WantedPolicy>) -> Prepared {
        let prepared = wanted.into_iter().map(|wanted| {
            let accepted = self.entries.get(&wanted.name).is_some_and(|entry| {
                entry.active.is_some() && entry.source == wanted.source && entry.settings == wanted.settings
            });
            let (outcome, seen) = self.prepare_one(&wanted);
            PreparedPolicy {
                wanted,
                outcome,
                seen,
                accepted,
            }
        });
        Prepared {
            policies: prepared.collect(),
        }
    }

    /// The same, where there is no last good version to go on with: waits until no file seems half-written.
    pub(crate) fn prepare_settled(&mut self, wanted: impl Fn() -> Vec<WantedPolicy>) -> Prepared {
        loop {
            let prepared = self.prepare(wanted());
            if !prepared.is_unsettled() {
                return prepared;
            }
            std::thread::sleep(RETRY);
        }
    }

    fn prepare_one(&mut self, wanted: &WantedPolicy) -> (Outcome, Option<Seen>) {
        let entry = self.entries.get(&wanted.name);
        let active = entry
            .filter(|entry| entry.settings == wanted.settings)
            .and_then(|entry| Some((entry, entry.active.as_ref()?)));
        let seen = component::look(&wanted.source);
        if let Some((entry, active)) = active
            && seen.is_some()
            && seen == active.seen
            && entry.source == wanted.source
        {
            return (Outcome::InForce, seen);
        }
        let component = match component::read(&wanted.source) {
            Ok(component) => component,
            Err(problem) => return (Outcome::Failed(Arc::new(problem)), None),
        };
        let digest = component.digest();
        // A file that was written a moment ago may change again without a sign of it.
        let seen = seen.filter(|_| !component.settling);
        if active.is_some_and(|(_, active)| active.version.digest == digest) {
            return (Outcome::InForce, seen);
        }
        match self.attempt(wanted, &component.bytes, digest) {
            Ok(policy) => (Outcome::Fresh(Version::new(policy, digest)), seen),
            Err(_) if component.settling => {
                // It may be half-written: what is wrong with it is not yet news.
                self.attempts.remove(&wanted.name);
                (Outcome::Unsettled, None)
            }
            Err(problem) => (Outcome::Failed(problem), None),
        }
    }

    fn attempt(
        &mut self,
        wanted: &WantedPolicy,
        bytes: &[u8],
        digest: Digest,
    ) -> Result<Arc<WasmPolicy>, Arc<PolicyProblem>> {
        if let Some(last) = self.attempts.get(&wanted.name)
            && last.digest == digest
            && last.settings == wanted.settings
        {
            return last.result.clone();
        }
        let state = Arc::clone(self.states.entry(wanted.name.clone()).or_default());
        let load = || self.engine.load(&wanted.name, bytes, &wanted.settings, state);
        // The library is not changed while it loads, so a panic leaves it whole.
        let result = match catch_unwind(AssertUnwindSafe(load)) {
            Ok(Ok(policy)) => Ok(Arc::new(policy)),
            Ok(Err(refused)) => Err(Arc::new(PolicyProblem::Load(refused))),
            Err(_) => Err(Arc::new(PolicyProblem::Panicked)),
        };
        let attempt = Attempt {
            digest,
            settings: wanted.settings.clone(),
            result: result.clone(),
        };
        self.attempts.insert(wanted.name.clone(), attempt);
        result
    }

    /// Puts in force what was prepared, and forgets every policy that is not among it.
    pub(crate) fn commit(&mut self, prepared: Prepared) -> Committed {
        let mut done = Committed::default();
        let mut entries = std::mem::take(&mut self.entries);
        for policy in prepared.policies {
            let name = policy.wanted.name.clone();
            let entry = self.commit_one(entries.remove(&name), policy, &mut done);
            self.entries.insert(name, entry);
        }
        let known = |name: &String| self.entries.contains_key(name);
        self.attempts.retain(|name, _| known(name));
        self.states.retain(|name, _| known(name));
        done
    }

    fn commit_one(&mut self, known: Option<Entry>, policy: PreparedPolicy, done: &mut Committed) -> Entry {
        let WantedPolicy {
            name,
            source,
            settings,
        } = policy.wanted;
        let (mut active, old_problem, mut swaps) = match known {
            Some(entry) => (entry.active, entry.problem, entry.swaps),
            None => (None, None, 0),
        };
        let problem = match policy.outcome {
            Outcome::InForce => {
                if let Some(active) = &mut active {
                    active.seen = policy.seen;
                }
                None
            }
            Outcome::Fresh(version) => {
                self.attempts.remove(&name);
                active = Some(Active {
                    version,
                    seen: policy.seen,
                    since: SystemTime::now(),
                });
                swaps += 1;
                done.swapped.push(name);
                None
            }
            Outcome::Unsettled => old_problem,
            Outcome::Failed(problem) => {
                // Of other settings: nothing vouches for it any more.
                active = active.filter(|_| policy.accepted);
                let text = chain(&*problem);
                if old_problem.as_ref() != Some(&text) {
                    done.failed.push((name, problem));
                }
                Some(text)
            }
        };
        Entry {
            source,
            settings,
            active,
            problem,
            swaps,
        }
    }

    /// The versions of a policy as routes get them, led by a fresh one of `prepared` where there is one; none while no version
    /// ever worked.
    #[must_use]
    pub(crate) fn versions(&self, name: &str, prepared: Option<&Prepared>) -> Option<Arc<PolicyVersions>> {
        let active = self.entries.get(name).and_then(|entry| entry.active.as_ref());
        let active = active.map(|active| &active.version);
        let mut chain = prepared
            .and_then(|prepared| prepared.fresh(name))
            .into_iter()
            .chain(active);
        let in_force = chain.next()?.link();
        Some(Arc::new(PolicyVersions::new(in_force, chain.map(Version::link))))
    }

    /// The state of each.
    #[must_use]
    pub(crate) fn report(&self) -> Vec<PolicyReport> {
        self.entries
            .iter()
            .map(|(name, entry)| report::of(name, entry))
            .collect()
    }
}

/// What a commit did.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    /// Policies with a new version in force.
    pub swapped: Vec<String>,
    /// Policies whose newest bytes could not be used, with why, each told once.
    pub failed: Vec<(String, Arc<PolicyProblem>)>,
}

impl Committed {
    pub(crate) fn log(&self) {
        for policy in &self.swapped {
            info!(policy, "policy in force");
        }
        for (policy, problem) in &self.failed {
            error!(
                policy,
                error = chain(&**problem),
                "policy refused; its last good version, if any, stays"
            );
        }
    }
}
