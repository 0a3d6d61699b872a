//! Long runs of a real router process over mock engines, under an open loop of requests: `chaos`, in which everything
//! goes wrong at random, `churn`, in which everything comes and goes and memory is watched, and `hostile`, in which
//! everybody else attacks.
//!
//! The engines and the clients are in this process, the router is Conductor's binary with a file of its own. The seed
//! decides what happens and in which order; when things meet is up to the clock.

mod account;
pub mod chaos;
pub mod churn;
mod client;
mod fleet;
pub mod hostile;
mod router;
mod trouble;

use std::future::Future;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

/// Options of both runs.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Duration.
    #[arg(long)]
    minutes: f64,
    /// Of everything that is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Mock engines.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(2..=64))]
    workers: u16,
    /// Requests a second.
    #[arg(long, default_value_t = 100.0)]
    rate: f64,
    /// Conductor's binary, built with `cargo build --release -p conductor`.
    #[arg(long, value_name = "PATH", default_value = "target/release/conductor")]
    conductor: PathBuf,
    /// A folder with components of policies to swap.
    #[arg(long, value_name = "FOLDER", default_value = "policies/prebuilt")]
    policies: PathBuf,
    /// The core of the router; the engines and clients are on the other ones.
    #[arg(long, default_value_t = 1)]
    router_core: usize,
}

/// Runs on a runtime of its own.
fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("failed to build a runtime")?.block_on(work)
}
