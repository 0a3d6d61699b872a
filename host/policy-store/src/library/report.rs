//! Report on a policy, for `/admin/policies` and metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use policy_runtime::{LoadReport, WasmPolicy};
use routing::{FaultKind, hex};
use serde::Serialize;
use serde_json::Value;

use super::entry::PolicyEntry;
use super::listening::ListeningReport;
use super::origin::ComponentOrigin;
use super::version::LoadedVersion;
use super::wanted_policy::PolicySource;
use crate::pipeline_report::PipelineReport;

/// Counter of a pipeline's decisions.
pub trait PipelineDecisions: fmt::Debug + Send + Sync {
    /// Returns the number of decisions so far.
    fn count(&self) -> u64;
}

/// State of one policy.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyReport {
    /// Name in the configuration.
    pub name: String,
    /// `builtin NAME`, or the path of the file.
    pub source: String,
    /// Name and version in the active component's manifest; none while no version has worked.
    pub manifest: Option<String>,
    /// SHA-256 of the active bytes.
    pub sha256: Option<String>,
    /// Id of the active version.
    pub version: Option<String>,
    /// Id of the deciding version: the active one, or one before it while its circuit is open. `fallback` if none
    /// decides.
    pub decides: Option<String>,
    /// Versions activated since start.
    pub swaps: u64,
    /// Time of the last activation, in milliseconds since 1970.
    pub since_unix_ms: Option<u64>,
    /// Problem of the newest bytes, while an older version or none serves.
    pub problem: Option<String>,
    /// True while a new version is compiled.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub compiling: bool,
    /// SHA-256 of rolled-back bytes. They are not loaded until other bytes come or they are resumed.
    pub held_back: Vec<String>,
    /// True if the rollback survives a restart; absent without a rollback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback_kept: Option<bool>,
    /// Calls of the active version.
    pub calls: u64,
    /// Failed ones of these calls.
    pub faults: u64,
    /// Events and ticks, if it is on a route and receives any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<ListeningReport>,
    /// Parts, if it is a pipeline. Its scorers have versions, a pipeline has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineReport>,
    /// All kept versions: active, earlier and rolled back.
    pub versions: Vec<VersionReport>,
    /// Versions to count with [`PolicyReport::counted`].
    #[serde(skip)]
    kept: Vec<(VersionState, LoadedVersion)>,
    /// Source of the newest version; none for a pipeline.
    #[serde(skip)]
    component: Option<PolicySource>,
    /// Counter of a pipeline's decisions, for the same.
    #[serde(skip)]
    decided: Option<Arc<dyn PipelineDecisions>>,
}

/// State of a kept version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VersionState {
    /// Active: it decides.
    Active,
    /// Earlier: it decides while no later version can.
    Before,
    /// Rolled back.
    HeldBack,
}

/// Report on one version.
#[derive(Debug, Clone, Serialize)]
pub struct VersionReport {
    /// Beginning of the SHA-256 of its bytes, and of its settings unless they are the default.
    pub id: String,
    /// State.
    pub state: VersionState,
    /// SHA-256 of the bytes.
    pub sha256: String,
    /// Name and version in its manifest.
    pub manifest: String,
    /// Parameters.
    pub params: Value,
    /// Time of its last activation, in milliseconds since 1970.
    pub since_unix_ms: Option<u64>,
    /// Counters.
    #[serde(flatten)]
    pub counts: VersionCounts,
    /// Circuit breaker.
    pub circuit: CircuitReport,
    /// Times of its loading.
    pub load: LoadTimes,
}

/// Counters of one version.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VersionCounts {
    /// Calls.
    pub calls: u64,
    /// Failed calls by kind, with the answers that the router found invalid.
    pub faults: BTreeMap<&'static str, u64>,
    /// Log lines that were dropped because it wrote too many. On `/metrics` only: they change no decision.
    #[serde(skip)]
    pub log_lines_dropped: u64,
}

/// State of a circuit breaker.
#[derive(Debug, Clone, Serialize)]
pub struct CircuitReport {
    /// `closed`, `open` or `half-open`.
    pub state: &'static str,
    /// Transitions from closed to open.
    pub openings: u64,
}

/// Wall-clock times of loading, in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct LoadTimes {
    /// Compiling and linking.
    pub compiled_us: u64,
    /// Making an instance, which the next call after a fault waits for.
    pub instantiated_us: u64,
    /// One decision over 256 synthetic candidates.
    pub decided_256_us: f64,
}

impl PolicyReport {
    pub(super) fn of(entry: &PolicyEntry) -> Self {
        let active = entry.active();
        let in_chain = entry.chain.iter().enumerate().map(|(at, version)| {
            let place = if at == 0 {
                VersionState::Active
            } else {
                VersionState::Before
            };
            (place, version)
        });
        let held = entry.held.iter().map(|version| (VersionState::HeldBack, version));
        Self {
            name: entry.wanted.name.clone(),
            source: entry.wanted.source.to_string(),
            manifest: active.map(manifest),
            sha256: active.map(|active| hex(&active.digest)),
            version: active.map(|active| active.id.to_string()),
            decides: None,
            swaps: entry.swaps,
            since_unix_ms: active.and_then(|active| unix_ms(active.since)),
            problem: entry.problem.clone(),
            compiling: entry.is_loading,
            rollback_kept: (entry.rolled_back().next().is_some()).then_some(entry.kept.is_some()),
            held_back: (entry.rolled_back().filter_map(|held| held.digest()))
                .map(|digest| hex(&digest))
                .collect(),
            calls: 0,
            faults: 0,
            events: None,
            pipeline: None,
            versions: Vec::new(),
            kept: in_chain
                .chain(held)
                .map(|(place, version)| (place, version.clone()))
                .collect(),
            component: Some(entry.wanted.source.clone()),
            decided: None,
        }
    }

    /// Returns the report on a pipeline, which decides under the id `version`.
    pub fn of_pipeline(
        name: &str,
        version: &str,
        pipeline: PipelineReport,
        decided: Arc<dyn PipelineDecisions>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            source: "pipeline".to_owned(),
            manifest: None,
            sha256: None,
            version: Some(version.to_owned()),
            decides: None,
            swaps: 0,
            since_unix_ms: None,
            problem: None,
            compiling: false,
            rollback_kept: None,
            held_back: Vec::new(),
            calls: 0,
            faults: 0,
            events: None,
            pipeline: Some(pipeline),
            versions: Vec::new(),
            kept: Vec::new(),
            component: None,
            decided: Some(decided),
        }
    }

    /// Returns the active component; none for a pipeline, and while no version has worked.
    #[must_use]
    pub fn active_component(&self) -> Option<&Arc<WasmPolicy>> {
        self.active_version().map(|version| &version.policy)
    }

    /// Returns the origin of the active component; none for a pipeline, and if its bytes are nowhere any more. Reads a
    /// file.
    #[must_use]
    pub fn active_origin(&self) -> Option<ComponentOrigin> {
        ComponentOrigin::of(self.active_version()?, self.component.as_ref()?)
    }

    fn active_version(&self) -> Option<&LoadedVersion> {
        let mut kept = self.kept.iter();
        let active = kept.find(|(state, _)| *state == VersionState::Active);
        active.map(|(_, version)| version)
    }

    /// Returns the report with the current counters and circuits.
    #[must_use]
    pub fn counted(mut self) -> Self {
        if let Some(decided) = &self.decided {
            self.calls = decided.count();
            self.decides.clone_from(&self.version);
            return self;
        }
        self.versions = self
            .kept
            .iter()
            .map(|(place, version)| VersionReport::of(*place, version))
            .collect();
        if let Some(active) = self
            .versions
            .first()
            .filter(|first| first.state == VersionState::Active)
        {
            self.calls = active.counts.calls;
            self.faults = active.counts.faults.values().sum();
        }
        let chain = self
            .kept
            .iter()
            .filter(|(place, _)| *place != VersionState::HeldBack);
        let mut deciding = chain
            .filter(|(_, version)| version.decides())
            .map(|(_, version)| version.id.to_string());
        self.decides = self
            .version
            .as_ref()
            .map(|_| deciding.next().unwrap_or_else(|| "fallback".to_owned()));
        self
    }
}

impl VersionReport {
    fn of(state: VersionState, version: &LoadedVersion) -> Self {
        let stats = version.policy.stats();
        let mut faults: BTreeMap<&'static str, u64> = FaultKind::ALL
            .iter()
            .map(|kind| (kind.as_str(), stats.faults(*kind)))
            .collect();
        // The circuit counts every failure; the runtime does not count answers that the router found invalid.
        let known: u64 = faults.values().sum();
        *faults.entry(FaultKind::InvalidVerdict.as_str()).or_default() +=
            version.circuit.faults().saturating_sub(known);
        faults.retain(|_, count| *count > 0);
        Self {
            id: version.id.to_string(),
            state,
            sha256: hex(&version.digest),
            manifest: manifest(version),
            params: serde_json::from_str(&version.settings.params_json).unwrap_or_default(),
            since_unix_ms: unix_ms(version.since),
            counts: VersionCounts {
                calls: stats.calls,
                faults,
                log_lines_dropped: stats.log_lines_dropped,
            },
            circuit: CircuitReport {
                state: version.circuit.state().as_str(),
                openings: version.circuit.openings(),
            },
            load: LoadTimes::of(version.policy.report()),
        }
    }
}

impl LoadTimes {
    fn of(report: &LoadReport) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            compiled_us: micros(report.compiled_in),
            instantiated_us: micros(report.instantiated_in),
            decided_256_us: report.decided_256_in.as_nanos() as f64 / 1e3,
        }
    }
}

fn manifest(version: &LoadedVersion) -> String {
    let manifest = version.policy.manifest();
    format!("{} {}", manifest.name, manifest.version)
}

fn unix_ms(time: SystemTime) -> Option<u64> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}
