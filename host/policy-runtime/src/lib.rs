//! Scheduling policies as WebAssembly components: this crate reduces wasmtime to a [`routing::Policy`].
//!
//! Bytes become a policy in [`PolicyEngine::load`], which refuses whatever could not decide: a file that is no
//! component, one built for another contract, one that traps on a trial. A loaded [`WasmPolicy`] decides on the
//! caller's thread within a budget of CPU time and memory; whatever a component does wrong comes back as a
//! [`routing::PolicyFault`], and the next call gets a fresh instance.
//!
//! Nothing outside this crate names wasmtime, and nothing inside knows HTTP, files or the configuration.
//! Why it is built this way: `host/adr/0003-policy-runtime.md`.

mod bindings;
mod budget;
mod component;
mod contract;
mod engine;
mod fault;
mod guest;
mod host_functions;
mod instance;
mod limits;
mod load;
mod load_error;
mod policy;
mod policy_log;
mod probe;
mod random;
mod settings;
mod slots;
mod state;
mod stats;

pub use contract::{Mismatch, Mismatches};
pub use engine::{EngineError, EngineLimits, PolicyEngine};
pub use fault::Failure;
pub use load_error::LoadError;
pub use policy::{LoadReport, Manifest, WasmPolicy};
pub use probe::ProbeError;
pub use settings::PolicySettings;
pub use state::{PolicyState, Refusal};
pub use stats::PolicyStats;
