//! The composition root as a library, so that tests start the very router the binary starts.

pub mod about;
mod app;
mod check;
pub mod cli;
mod compose;
mod config_hash;
pub mod demo;
pub mod import;
mod indexer;
pub mod init;
mod listeners;
mod live_check;
mod live_fleet;
mod metrics;
mod reload;
mod replica_bus;
mod replica_usage;
mod replicas;
pub mod serve;
mod service_manager;
mod shared_trials;
mod signals;
pub mod start;
mod tasks;

pub use app::{App, BuildError};
pub use check::{CheckError, Checked, check};
pub use conductor_tools::Exit;
pub use listeners::ListenError;
pub use local_files::ConfigSource;
pub use policy_store::builtin;
pub use process_resources::raise_open_files;
pub use proxy::Readiness;
