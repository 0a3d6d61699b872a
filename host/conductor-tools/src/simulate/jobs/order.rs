//! Order of a simulation: what a job runs.

use std::path::PathBuf;

use tempfile::TempDir;

/// Simulation to run.
#[derive(Debug)]
pub struct SimulationOrder {
    /// File of this very program.
    pub program: PathBuf,
    /// Decision log with the requests.
    pub log: PathBuf,
    /// Pool of the log, if it has several.
    pub pool: Option<String>,
    /// Speed-up factor of the arrivals.
    pub rate: f64,
    /// Policies to compare.
    pub policies: Vec<SimulatedPolicy>,
}

/// Policy of a simulation.
#[derive(Debug)]
pub struct SimulatedPolicy {
    /// Name in the configuration.
    pub name: String,
    /// Argument of `conductor simulate` that stands for it.
    pub argument: String,
    /// Folder with the component that the argument names, removed after the simulation. `None` for a built-in policy.
    pub folder: Option<TempDir>,
}
