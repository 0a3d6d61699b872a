//! Every policy the configuration or the policy folder names, each with the last version that worked.
//!
//! The rule of this file: a policy that has decided once never stops deciding because of a bad file. Whatever is
//! wrong with new bytes or new parameters is kept as the entry's problem, shown and counted, while the last
//! good version serves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use policy_runtime::{LoadError, PolicyEngine, PolicySettings, PolicyState, WasmPolicy};
use routing::FaultKind;
use serde::Serialize;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::builtin;

/// Larger files are not components of policies (the largest real one, Python's, has 18 MB).
const MAX_COMPONENT: u64 = 64 << 20;
/// A file younger than this may still be being written: what is wrong with it is not yet news.
const SETTLING: Duration = Duration::from_millis(500);

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

/// What one reconciliation did.
#[derive(Debug, Default)]
pub(crate) struct Reconciled {
    /// Policies with a new version in force.
    pub swapped: Vec<String>,
    /// Policies whose new bytes or parameters could not be used, with why, each told once.
    pub failed: Vec<(String, PolicyProblem)>,
    /// Some file looked half-written: look again shortly.
    pub unsettled: bool,
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
}

/// One policy's state, for `/admin/policies`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct PolicyReport {
    /// Its name in the configuration.
    pub name: String,
    /// `builtin` or the file's path.
    pub source: String,
    /// What the component calls itself; none while no version ever worked.
    pub manifest: Option<String>,
    /// SHA-256 of the bytes in force.
    pub sha256: Option<String>,
    /// Versions put in force since start.
    pub swaps: u64,
    /// When the version in force was, in milliseconds since 1970.
    pub since_unix_ms: Option<u64>,
    /// What is wrong with the newest bytes or parameters, while an older version serves.
    pub problem: Option<String>,
    /// Decisions asked of the version in force.
    pub calls: u64,
    /// Of those, the ones it failed.
    pub faults: u64,
    /// The version in force, for [`PolicyReport::counted`].
    #[serde(skip)]
    deciding: Option<Arc<WasmPolicy>>,
}

impl PolicyReport {
    /// With its counters as they are now.
    #[must_use]
    pub(crate) fn counted(mut self) -> Self {
        if let Some(policy) = &self.deciding {
            let stats = policy.stats();
            self.calls = stats.calls;
            self.faults = FaultKind::ALL.iter().map(|kind| stats.faults(*kind)).sum();
        }
        self
    }
}

#[derive(Debug)]
struct Entry {
    source: PolicySource,
    /// The last state of file and settings that was tried, good or bad.
    tried: Option<Attempted>,
    active: Option<Active>,
    problem: Option<String>,
    swaps: u64,
}

#[derive(Debug, PartialEq)]
struct Attempted {
    digest: [u8; 32],
    settings: PolicySettings,
}

#[derive(Debug, Clone)]
struct Active {
    policy: Arc<WasmPolicy>,
    digest: [u8; 32],
    since: SystemTime,
}

/// The library. Owned by the one thread that reloads; compiles there, never on a request's thread.
#[derive(Debug)]
pub(crate) struct PolicyLibrary {
    engine: PolicyEngine,
    entries: BTreeMap<String, Entry>,
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
            states: BTreeMap::new(),
        }
    }

    /// Loads what is new or changed among `wanted`. Blocks while it compiles. Forgets nothing: see
    /// [`PolicyLibrary::keep_only`].
    pub(crate) fn reconcile(&mut self, wanted: Vec<WantedPolicy>) -> Reconciled {
        let mut done = Reconciled::default();
        for policy in wanted {
            self.reconcile_one(policy, &mut done);
        }
        done
    }

    /// Forgets every other policy, once a configuration without them is in force.
    pub(crate) fn keep_only(&mut self, wanted: &[WantedPolicy]) {
        let is_wanted = |name: &String| wanted.iter().any(|policy| policy.name == *name);
        self.entries.retain(|name, _| is_wanted(name));
        self.states.retain(|name, _| is_wanted(name));
    }

    fn reconcile_one(&mut self, wanted: WantedPolicy, done: &mut Reconciled) {
        let entry = self.entries.entry(wanted.name.clone()).or_insert_with(|| Entry {
            source: wanted.source.clone(),
            tried: None,
            active: None,
            problem: None,
            swaps: 0,
        });
        entry.source = wanted.source.clone();
        let component = match read(&wanted.source) {
            Ok(component) => component,
            Err(problem) => return entry.fail(wanted.name, problem, done),
        };
        let digest: [u8; 32] = Sha256::digest(&component.bytes).into();
        let attempt = Attempted {
            digest,
            settings: wanted.settings.clone(),
        };
        if entry.tried.as_ref() == Some(&attempt) {
            return;
        }
        let state = Arc::clone(self.states.entry(wanted.name.clone()).or_default());
        match self
            .engine
            .load(&wanted.name, &component.bytes, &wanted.settings, state)
        {
            Ok(policy) => {
                entry.active = Some(Active {
                    policy: Arc::new(policy),
                    digest,
                    since: SystemTime::now(),
                });
                entry.tried = Some(attempt);
                entry.problem = None;
                entry.swaps += 1;
                done.swapped.push(wanted.name);
            }
            Err(_) if component.settling => done.unsettled = true,
            Err(source) => {
                entry.tried = Some(attempt);
                entry.fail(wanted.name, PolicyProblem::Load(source), done);
            }
        }
    }

    /// The version of a policy that decides now; none while no version ever worked.
    #[must_use]
    pub(crate) fn active(&self, name: &str) -> Option<Arc<WasmPolicy>> {
        self.entries
            .get(name)?
            .active
            .as_ref()
            .map(|active| Arc::clone(&active.policy))
    }

    /// What is wrong with a policy, if anything.
    #[must_use]
    pub(crate) fn problem(&self, name: &str) -> Option<&str> {
        self.entries.get(name)?.problem.as_deref()
    }

    /// The state of each.
    #[must_use]
    pub(crate) fn report(&self) -> Vec<PolicyReport> {
        self.entries
            .iter()
            .map(|(name, entry)| entry.report(name))
            .collect()
    }
}

impl Entry {
    fn fail(&mut self, name: String, problem: PolicyProblem, done: &mut Reconciled) {
        let text = chain(&problem);
        if self.problem.as_deref() != Some(&text) {
            self.problem = Some(text);
            done.failed.push((name, problem));
        }
    }

    fn report(&self, name: &str) -> PolicyReport {
        let active = self.active.as_ref();
        PolicyReport {
            name: name.to_owned(),
            source: match &self.source {
                PolicySource::Builtin(builtin) => format!("builtin {builtin}"),
                PolicySource::File(path) => path.display().to_string(),
            },
            manifest: active.map(|active| {
                let manifest = active.policy.manifest();
                format!("{} {}", manifest.name, manifest.version)
            }),
            sha256: active.map(|active| hex(&active.digest)),
            swaps: self.swaps,
            since_unix_ms: active.and_then(|active| {
                let since = active.since.duration_since(SystemTime::UNIX_EPOCH).ok()?;
                u64::try_from(since.as_millis()).ok()
            }),
            problem: self.problem.clone(),
            calls: 0,
            faults: 0,
            deciding: active.map(|active| Arc::clone(&active.policy)),
        }
    }
}

/// The `*.wasm` files of the policy folder by file stem, sorted. A folder that cannot be read holds none.
#[must_use]
pub(crate) fn policies_in(folder: &Path) -> Vec<(String, PathBuf)> {
    let files = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    let mut found: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "wasm") && path.is_file())
        .filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), path)))
        // Editors and `cp` leave hidden files beside the one being written.
        .filter(|(name, _)| !name.starts_with('.'))
        .collect();
    found.sort();
    found
}

struct Component {
    bytes: Vec<u8>,
    settling: bool,
}

fn read(source: &PolicySource) -> Result<Component, PolicyProblem> {
    match source {
        PolicySource::Builtin(name) => {
            let builtin = builtin::find(name).ok_or_else(|| PolicyProblem::NoBuiltin(name.clone()))?;
            Ok(Component {
                bytes: builtin.bytes.to_vec(),
                settling: false,
            })
        }
        PolicySource::File(path) => read_file(path),
    }
}

fn read_file(path: &Path) -> Result<Component, PolicyProblem> {
    let failed = |source| PolicyProblem::Read {
        path: path.to_owned(),
        source,
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.len() > MAX_COMPONENT {
        return Err(PolicyProblem::TooLarge {
            path: path.to_owned(),
            size: metadata.len(),
        });
    }
    let age = metadata
        .modified()
        .ok()
        .and_then(|modified| modified.elapsed().ok());
    let bytes = fs::read(path).map_err(failed)?;
    Ok(Component {
        bytes,
        settling: age.is_some_and(|age| age < SETTLING),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// An error and its sources on one line, for reports and logs.
#[must_use]
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
