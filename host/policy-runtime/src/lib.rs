//! Scheduling policies as WebAssembly components: this crate reduces wasmtime to a [`routing::Policy`].
//!
//! Bytes become a policy in [`PolicyEngine::load`], which refuses whatever could not decide: a file that is no
//! component, one built for another contract, one that traps on a trial. A loaded [`WasmPolicy`] decides on the
//! caller's thread within a budget of CPU time and memory; whatever a component does wrong comes back as a
//! [`routing::PolicyFault`], and the next call gets a fresh instance.
//!
//! Nothing outside this crate names wasmtime, and nothing inside knows HTTP, the configuration, or files other than its own compiled
//! code ([`CodeCache`]).
//! Why it is built this way: `host/adr/0003-policy-runtime.md`.

mod bindings;
mod bounds;
mod budget;
pub mod child;
mod code_cache;
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
mod listening_trial;
mod load;
mod load_error;
mod machine_code;
mod made_up;
mod parameters;
mod policy;
mod policy_log;
mod probe;
mod rehearsal;
mod scenarios;
mod scoring;
mod sessions;
mod settings;
mod slots;
mod state;
mod stats;
mod subscription;
mod tape;
mod ticker;

pub use bounds::{CompileBounds, Excess, Quantity};
pub use code_cache::{CodeCache, CodeCacheError, CodeCacheStats};
pub use contract::{Mismatch, Mismatches};
pub use engine::{EngineError, EngineLimits, PolicyEngine};
pub use fault::Failure;
pub use inspection::{Inspection, Interface, Interview};
pub use listening_trial::Chore;
pub use load_error::LoadError;
pub use made_up::MadeUpCall;
pub use parameters::{ParamFault, ParamFaults, ParamPlace, Parameter, ParameterError, ParameterKind};
pub use policy::{LoadReport, Manifest, WasmPolicy};
pub use probe::ProbeError;
pub use rehearsal::{Endurance, Rehearsal, RehearsalStep, Scene};
pub use scenarios::Scenario;
pub use sessions::{SessionEntry, Sessions};
pub use settings::PolicySettings;
pub use state::{PolicyState, Refusal, Remembered};
pub use stats::PolicyStats;
pub use subscription::SubscribeError;
pub use tape::Divergence;
