//! The state of a policy, for `/admin/policies` and metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use policy_runtime::LoadReport;
use routing::FaultKind;
use serde::Serialize;
use serde_json::Value;

use super::entry::PolicyEntry;
use super::listening::ListeningReport;
use super::version::LoadedVersion;
use super::wanted_policy::hex;
use crate::pipeline_report::PipelineReport;

/// Counter of a pipeline's decisions.
pub trait PipelineDecisions: fmt::Debug + Send + Sync {
    /// Returns the number of decisions so far.
    fn count(&self) -> u64;
}

/// State of one policy.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PolicyReport {
    /// Its name in the configuration.
    pub name: String,
    /// `builtin NAME` or the file's path.
    pub source: String,
    /// What the component in force calls itself; none while no version ever worked.
    pub manifest: Option<String>,
    /// SHA-256 of the bytes in force.
    pub sha256: Option<String>,
    /// Id of the version in force.
    pub version: Option<String>,
    /// Id of the version that decides now, if not the one in force since that failed too often; `fallback` where none does.
    pub decides: Option<String>,
    /// Versions put in force since start.
    pub swaps: u64,
    /// When the version in force was, in milliseconds since 1970.
    pub since_unix_ms: Option<u64>,
    /// What is wrong with the newest bytes, while an older version serves or none ever did.
    pub problem: Option<String>,
    /// Whether a new version is being compiled.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub compiling: bool,
    /// SHA-256 of the bytes that were rolled back and are not loaded until other bytes come or they are resumed.
    pub held_back: Vec<String>,
    /// Whether the rollback survives a restart, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback_kept: Option<bool>,
    /// Decisions asked of the version in force.
    pub calls: u64,
    /// Of those, the ones it failed.
    pub faults: u64,
    /// What it is told of events, where it is on a route and wants to be told any, or ticks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<ListeningReport>,
    /// What it is made of, where it is a pipeline; its scorers have versions, it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineReport>,
    /// Every version that is kept: the one in force, those before it, those rolled back.
    pub versions: Vec<VersionReport>,
    /// The versions themselves, for [`PolicyReport::counted`].
    #[serde(skip)]
    kept: Vec<(VersionState, LoadedVersion)>,
    /// The counters of a pipeline, for the same.
    #[serde(skip)]
    decided: Option<Arc<dyn PipelineDecisions>>,
}

/// What a version is kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VersionState {
    /// It decides.
    #[serde(rename = "in-force")]
    Active,
    /// It decides while those after it cannot.
    Before,
    /// It was rolled back.
    HeldBack,
}

/// One version's state.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct VersionReport {
    /// The beginning of its bytes' SHA-256, and of its settings' where they are not the default ones.
    pub id: String,
    /// What it is kept for.
    pub state: VersionState,
    /// SHA-256 of its bytes.
    pub sha256: String,
    /// What it calls itself.
    pub manifest: String,
    /// Its own parameters.
    pub params: Value,
    /// When it was put in force last, in milliseconds since 1970.
    pub since_unix_ms: Option<u64>,
    /// Decisions asked of it.
    pub calls: u64,
    /// Of those, the ones it failed, by how; nonsense that the router found included.
    pub faults: BTreeMap<&'static str, u64>,
    /// Whether it is asked.
    pub circuit: CircuitReport,
    /// What was measured while it was loaded.
    pub load: LoadTimes,
}

/// A circuit's state.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CircuitReport {
    /// `closed`, `open` or `half-open`.
    pub state: &'static str,
    /// Times it went from closed to open.
    pub openings: u64,
}

/// Real times of loading, in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LoadTimes {
    /// Of compiling and linking.
    pub compiled_us: u64,
    /// Of making an instance: what a fault costs the next call.
    pub instantiated_us: u64,
    /// Of one decision over 256 made-up candidates.
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
            decided: None,
        }
    }

    /// Of a pipeline; `version` is the id it decides under, and `decided` counts its decisions.
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
            decided: Some(decided),
        }
    }

    /// With its counters and circuits as they are now.
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
            self.calls = active.calls;
            self.faults = active.faults.values().sum();
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
        // The runtime does not know of the answers that the router found to be nonsense; the circuit counted every failure.
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
            calls: stats.calls,
            faults,
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
