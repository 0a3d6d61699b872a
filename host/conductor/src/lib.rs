//! The composition root as a library, so that tests start the very router the binary starts.

mod admin;
mod app;
pub mod block_hashes;
pub mod builtin;
mod check;
pub mod cli;
mod compose;
mod config_source;
pub mod demo;
mod discovery;
mod exit;
mod feed_list;
mod feed_metrics;
pub mod import;
mod index_feed;
mod indexer;
mod metrics;
mod policy_library;
mod reload;
pub mod serve;
mod signals;
mod status;
mod store_metrics;
mod tasks;
mod telemetry;
mod upkeep;
mod watch;

pub use app::{App, BuildError};
pub use check::{CheckError, Checked, check};
pub use config_source::ConfigSource;
pub use exit::Exit;
