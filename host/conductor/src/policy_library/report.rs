//! The state of a policy, for `/admin/policies`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::SystemTime;

use policy_runtime::WasmPolicy;
use routing::FaultKind;
use serde::Serialize;

use super::{Entry, PolicySource};

/// One policy's state.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct PolicyReport {
    /// Its name in the configuration.
    pub name: String,
    /// `builtin NAME` or the file's path.
    pub source: String,
    /// What the component calls itself; none while no version ever worked.
    pub manifest: Option<String>,
    /// SHA-256 of the bytes in force.
    pub sha256: Option<String>,
    /// Versions put in force since start.
    pub swaps: u64,
    /// When the version in force was, in milliseconds since 1970.
    pub since_unix_ms: Option<u64>,
    /// What is wrong with the newest bytes, while an older version serves or none ever did.
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

pub(super) fn of(name: &str, entry: &Entry) -> PolicyReport {
    let active = entry.active.as_ref();
    let deciding = active.map(|active| &active.version.policy);
    PolicyReport {
        name: name.to_owned(),
        source: match &entry.source {
            PolicySource::Builtin(builtin) => format!("builtin {builtin}"),
            PolicySource::File(path) => path.display().to_string(),
        },
        manifest: deciding.map(|policy| {
            let manifest = policy.manifest();
            format!("{} {}", manifest.name, manifest.version)
        }),
        sha256: deciding.map(|policy| policy.sha256().to_string()),
        swaps: entry.swaps,
        since_unix_ms: active.and_then(|active| {
            let since = active.since.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            u64::try_from(since.as_millis()).ok()
        }),
        problem: entry.problem.clone(),
        calls: 0,
        faults: 0,
        deciding: deciding.cloned(),
    }
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
