//! Policy configuration: the values of `[policies.NAME]`.

use std::path::PathBuf;
use std::time::Duration;

use routing::{CircuitSpec, PipelineSpec};

use crate::document::source::Mark;
use crate::document::source::Span;
use crate::sha256::Sha256;

/// Default limit of sessions per policy.
pub(super) const DEFAULT_SESSIONS: u32 = 65_536;

/// A policy that is declared, or that a route names.
///
/// To detect a change by a reload, compare everything except the positions, which move with every line added above.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyConfig {
    /// Unique name.
    pub name: String,
    /// Source.
    pub source: PolicySource,
    /// Position of the source, for components that cannot be loaded.
    pub source_at: Mark,
    /// A JSON object, keys sorted, without whitespace: equal parameters are equal texts.
    pub params_json: String,
    /// Position of `params`, for refused parameters.
    pub params_at: Option<Mark>,
    /// Position of each parameter, in the order of names.
    pub param_places: Vec<ParamPlace>,
    /// Limits of a call.
    pub limits: PolicyLimits,
    /// Circuit breaker of a failing version.
    pub circuit: CircuitSpec,
    /// Most sessions.
    pub sessions: u32,
    /// Required hash of the component; `None` for any.
    pub sha256: Option<Sha256>,
    /// Position of `sha256`, for components with another hash.
    pub sha256_at: Option<Mark>,
}

/// Positions of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamPlace {
    /// Name.
    pub name: String,
    /// Position of the name.
    pub key: Mark,
    /// Position of the value.
    pub value: Mark,
}

/// Source of a policy.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicySource {
    /// A builtin of Conductor.
    Builtin(String),
    /// A file, as written; relative paths start at the configuration file's folder.
    File(PathBuf),
    /// `NAME.wasm` in the policy folder, which is configured.
    Folder,
    /// A pipeline of other policies.
    Pipeline(PipelineConfig),
}

impl PolicySource {
    /// Returns `true` if its bytes come from a file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        matches!(self, Self::File(_) | Self::Folder)
    }
}

/// Limits of one call of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyLimits {
    /// CPU time.
    pub cpu: Duration,
    /// Real time, for a busy machine; at least `cpu`.
    pub wall: Duration,
    /// Linear memory of one instance, in bytes.
    pub memory: u64,
}

impl Default for PolicyLimits {
    fn default() -> Self {
        Self {
            cpu: Duration::from_millis(1),
            wall: Duration::from_millis(50),
            memory: 16 << 20,
        }
    }
}

impl PolicyConfig {
    /// Creates a policy without a table of its own.
    #[must_use]
    pub fn implied(name: &str, source: PolicySource, source_at: Mark) -> Self {
        Self {
            name: name.to_owned(),
            source,
            source_at,
            params_json: "{}".to_owned(),
            params_at: None,
            param_places: Vec::new(),
            limits: PolicyLimits::default(),
            circuit: CircuitSpec::default(),
            sessions: DEFAULT_SESSIONS,
            sha256: None,
            sha256_at: None,
        }
    }

    /// Returns the position of its parameters, or else of its source.
    #[must_use]
    pub fn settings_at(&self) -> &Mark {
        self.params_at.as_ref().unwrap_or(&self.source_at)
    }

    /// Returns the positions of a parameter, if it is set.
    #[must_use]
    pub fn param_place(&self, name: &str) -> Option<&ParamPlace> {
        self.param_places.iter().find(|place| place.name == name)
    }
}

/// A `[policies.NAME]` that was read; its name is valid even if its contents are not.
pub(crate) struct DeclaredPolicy {
    pub(crate) config: PolicyConfig,
    pub(crate) name_span: Span,
    /// Unreadable part.
    pub(crate) unread: Option<UnreadPart>,
}

/// Pipeline configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct PipelineConfig {
    /// Filters and scorers. Its scorers are policies of the configuration, but not pipelines.
    pub spec: PipelineSpec,
    /// Position of each scorer policy in order, for policies that are not scorers.
    pub scorers_at: Vec<Mark>,
}

impl PolicyConfig {
    /// Returns the pipeline, if it is one.
    #[must_use]
    pub fn pipeline(&self) -> Option<&PipelineConfig> {
        match &self.source {
            PolicySource::Pipeline(pipeline) => Some(pipeline),
            _ => None,
        }
    }
}

/// Unreadable part of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadPart {
    /// Source: it cannot be loaded.
    Source,
    /// Some of its settings: faults of the readable parameters hold, but missing ones may be present.
    Settings,
}
