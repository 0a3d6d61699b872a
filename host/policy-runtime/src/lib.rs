//! Scheduling policies as WebAssembly components: this crate reduces wasmtime to a [`routing::Policy`].
//!
//! [`PolicyEngine::load`] turns bytes into a policy. It refuses components that could not decide: a file that is not a
//! component, one built for another contract, one that traps in its trial. A loaded [`WasmPolicy`] decides on the
//! caller's thread within a budget of CPU time and memory. Every fault of a component is returned as a
//! [`routing::PolicyFault`], and the next call gets a new instance.
//!
//! Only this crate uses wasmtime. It does not know HTTP, the configuration, or files other than its own compiled code
//! ([`CodeCache`]). Design: `host/adr/0003-policy-runtime.md`.

mod bindings;
mod bounds;
mod budget;
pub mod child;
mod code_cache;
mod compiler_config;
mod component;
mod contract;
mod engine;
mod exports;
mod fault;
mod guest;
mod host_functions;
mod inspection;
mod instance;
mod limits;
mod listener;
mod listener_check;
mod load;
mod load_error;
mod machine_code;
mod parameters;
mod policy;
mod policy_log;
mod probe;
mod recorder;
mod rehearsal;
mod scenarios;
mod scoring;
mod sessions;
mod settings;
mod slots;
mod state;
mod stats;
mod subscription;
mod synthetic;
mod text;
mod ticker;

pub use bounds::{CompileBounds, Excess, Quantity};
pub use code_cache::{CodeCache, CodeCacheError, CodeCacheStats};
pub use contract::{Mismatch, Mismatches};
pub use engine::{EngineError, EngineLimits, PolicyEngine};
pub use fault::Failure;
pub use inspection::{ComponentInterface, DescribedPolicy, Inspection};
pub use listener_check::ListenerCheck;
pub use load_error::LoadError;
pub use parameters::{ParamFault, ParamFaults, ParamPlace, Parameter, ParameterError, ParameterKind};
pub use policy::{LoadReport, Manifest, WasmPolicy};
pub use probe::ProbeError;
pub use recorder::Divergence;
pub use rehearsal::{Endurance, Rehearsal, RehearsalStep, RehearsedScenario};
pub use scenarios::Scenario;
pub use sessions::{SessionEntry, Sessions};
pub use settings::PolicySettings;
pub use state::{PolicyState, Refusal, StateSnapshot};
pub use stats::PolicyStats;
pub use subscription::SubscribeError;
pub use synthetic::SyntheticCall;
