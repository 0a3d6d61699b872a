//! Store of scheduling policies: their components, versions, rollbacks and memory.
//!
//! [`PolicyLibrary`] loads the policies that a configuration names, keeps the last versions that worked and rolls back
//! to them. [`PolicyMemory`] keeps what policies remember over their versions and, in a folder, over restarts.
//! [`wanted_policies`] lists the components of a configuration, and [`UploadRules`] those that an upload may replace.
//! [`builtin`] has the components that are part of the binary. The store handles no requests: the fleet is a
//! [`FleetView`].

pub mod builtin;
mod compile_metrics;
mod configured;
mod engine;
mod library;
mod memory;
mod param_diagnostics;
mod pipeline_report;
mod policy_metrics;
mod settings;

pub use compile_metrics::CompileCollector;
pub use configured::{
    UploadError, UploadRules, UploadTarget, awaited_policies, components, pipeline_of, policy_folder,
    scorers_of, shadow_name, shadowed, state_folder, takes_file, unavailable_policies, wanted_policies,
};
pub use engine::{EngineOptions, compile_bounds, policy_engine, user_cache_folder};
pub use library::{
    ComponentOrigin, HoldState, IgnoredFile, ListeningReport, LoadedVersion, Loader, MAX_COMPONENT, Outcome,
    Permit, PipelineDecisions, PolicyCommit, PolicyLibrary, PolicyProblem, PolicyReport, PolicySource,
    Prepared, PreparedPolicy, RollbackError, RollbackUndo, SharedHold, SwappedPolicy, VersionIdentity,
    VersionReport, VersionState, WantedPolicy, component_bytes,
};
pub use memory::{
    FleetView, MemoryCollector, MemoryWriter, MemoryWriterHandle, OVERRIDES, PolicyMemory, StateFolder,
    WorkerNames,
};
pub use param_diagnostics::param_diagnostics;
pub use pipeline_report::{FilterReport, PipelineReport, ScorerReport, add_deciding_versions};
pub use policy_metrics::PolicyCollector;
pub use settings::policy_settings;
