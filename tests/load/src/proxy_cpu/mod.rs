//! One run that compares what systems cost: rounds of every system under the same load, one system at a time.
//!
//! The generator (this process) and the backends share one core; the system under test has another to itself. Its cost
//! is its own CPU time over exactly the measured window, divided by the requests answered in it: a figure that other
//! work on the machine disturbs least.

mod bench;
mod child;
mod conductor;
mod haproxy;
mod nginx;
mod peers;
mod probe;
pub(crate) mod processor;
mod scenario;
mod summary;
mod system;

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::interrupt::Interrupt;
pub use bench::Setting;
pub(crate) use bench::{Bench, Life, Subject, Try};
pub(crate) use child::Running;
pub use scenario::Scenario;
pub(crate) use summary::{CLEAN, Summary};
pub use system::System;

/// Arguments of the run.
#[derive(Debug, Args)]
pub struct Options {
    /// Only these systems, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = System::ALL)]
    systems: Vec<System>,
    /// Only these loads, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Scenario::Kib1, Scenario::Kib32])]
    scenarios: Vec<Scenario>,
    #[command(flatten)]
    setting: Setting,
    /// Also write every try and the medians to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the comparison, prints its tables, and optionally writes the JSON.
///
/// # Errors
/// The bench cannot run, was interrupted, or an installed system failed. In the last case too the tables of the
/// measurements are printed.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let folder = tempfile::tempdir().context("failed to create a temporary folder")?;
    let mut bench = Bench::start(options.setting.clone(), folder.path(), interrupt)?;
    let notes = bench.rounds(&options.systems, &options.scenarios)?;
    let summary = Summary::new(&bench.setting, &options.scenarios, &bench.tries, notes);
    print!("{}", summary.to_markdown());
    write_json(
        options.json.as_ref(),
        &summary.to_json(&bench.tries, &bench.lives),
    )?;
    anyhow::ensure!(summary.failed().is_empty(), "{}", summary.failed().join("\n"));
    Ok(())
}

pub(crate) fn write_json(file: Option<&PathBuf>, json: &serde_json::Value) -> Result<()> {
    let Some(file) = file else {
        return Ok(());
    };
    std::fs::write(file, format!("{json:#}\n"))
        .with_context(|| format!("failed to write `{}`", file.display()))
}

/// Systems that were not measured, with the reasons.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Systems that are not installed.
    pub(crate) skipped: Vec<String>,
    /// Systems that are, and failed.
    pub(crate) failed: Vec<String>,
}

impl Bench<'_> {
    /// Measures every system in turn, and all of them again, as often as configured. A failing system is left out
    /// from then on.
    pub(crate) fn rounds(&mut self, systems: &[System], scenarios: &[Scenario]) -> Result<Notes> {
        let mut notes = Notes::default();
        let mut systems = systems.to_vec();
        systems.retain(|system| match self.missing(*system) {
            None => true,
            Some(reason) => {
                notes.skipped.push(format!("{}: {reason}", system.name()));
                false
            }
        });
        let (rounds, workers) = (self.setting.rounds, self.setting.backends);
        for round in 1..=rounds {
            for system in systems.clone() {
                eprintln!("round {round}/{rounds}: {}, {workers} backends", system.name());
                if let Err(error) = self.measure(system, scenarios) {
                    anyhow::ensure!(!self.is_interrupted(), "interrupted");
                    eprintln!("    failed: {error:#}");
                    notes.failed.push(format!("{} failed: {error:#}", system.name()));
                    systems.retain(|other| *other != system);
                }
            }
        }
        Ok(notes)
    }
}

#[cfg(test)]
impl Try {
    /// Returns a try with four backends that nothing disturbed: a hundred requests in a second, on half a core.
    pub(crate) fn undisturbed(system: System, scenario: Scenario, cost: f64) -> Self {
        Self {
            subject: Subject { system, workers: 4 },
            scenario,
            cost,
            cost_by_ticks: cost,
            doubtful: false,
            cores: 0.5,
            others: 0.0,
            stolen: 0.0,
            resident: 0,
            report: crate::generate::Report {
                requests: 100,
                elapsed: Duration::from_secs(1),
                ..crate::generate::Report::default()
            },
        }
    }
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("failed to find a free port")?;
    Ok(listener
        .local_addr()
        .context("failed to find a free port")?
        .port())
}

fn seconds(value: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(value).with_context(|| format!("`{value}` is no duration"))
}
