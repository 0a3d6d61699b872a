//! One run that compares what systems cost: rounds of every system under the same load, one system at a time.
//!
//! The generator (this process) and the backends share one core; the system under test has another to itself. Its cost
//! is its own CPU time over exactly the measured window, divided by the requests answered in it: a figure that other
//! work on the machine disturbs least.

mod child;
mod conductor;
mod nginx;
mod processor;
mod summary;
mod system;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use crate::affinity;
use crate::generate::{self, Edge, Plan, Report};
use crate::interrupt::Interrupt;
use child::Running;
use processor::{MachineClock, TreeClock};
use summary::Summary;
use system::Site;
pub use system::System;

/// The pause between two tokens of the streams, in microseconds: a quick model's pace.
const TOKEN_SPACING_US: u64 = 10_000;

/// After so long a request counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Arguments of the run.
#[derive(Debug, Args)]
pub struct Options {
    /// Conductor's binary, built with `cargo build --release -p conductor`.
    #[arg(long, value_name = "PATH", default_value = "target/release/conductor")]
    conductor: PathBuf,
    /// Only these systems, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = System::ALL)]
    systems: Vec<System>,
    /// Only these loads, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Scenario::Kib1, Scenario::Kib32])]
    scenarios: Vec<Scenario>,
    /// How often each system is measured; tables show medians.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Seconds of load before each measured window.
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    warm_up_s: f64,
    /// Seconds of each measured window.
    #[arg(long, value_name = "S", default_value_t = 4.0)]
    window_s: f64,
    /// Keep-alive connections.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// How many backends.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    backends: u16,
    /// The core of the generator and the backends.
    #[arg(long, default_value_t = 0)]
    load_core: usize,
    /// The core of the system under test.
    #[arg(long, default_value_t = 1)]
    router_core: usize,
    /// Also write every try and the medians to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The loads, all closed loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// Requests of 1 KiB, replies of 1 KiB.
    #[value(name = "1k")]
    Kib1,
    /// Requests of 32 KiB, replies of 1 KiB.
    #[value(name = "32k")]
    Kib32,
    /// Streams of 200 tokens, one each 10 ms; the cost is per token.
    Sse,
}

impl Scenario {
    fn title(self) -> &'static str {
        match self {
            Self::Kib1 => "1 KiB requests",
            Self::Kib32 => "32 KiB requests",
            Self::Sse => "streams of 200 tokens, one per 10 ms",
        }
    }

    /// What the cost is divided by.
    fn unit(self) -> &'static str {
        if self == Self::Sse { "token" } else { "request" }
    }

    fn units(self, report: &Report) -> u64 {
        if self == Self::Sse {
            report.tokens
        } else {
            report.requests
        }
    }
}

/// One system under one load, once.
pub(crate) struct Try {
    system: System,
    scenario: Scenario,
    /// CPU time per unit, in microseconds.
    cost: f64,
    /// The same by the coarse clock that has ended threads.
    cost_by_ticks: f64,
    /// Whether the two disagree so much that the precise one lacks ended threads.
    doubtful: bool,
    /// Cores that the system used.
    cores: f64,
    /// Cores that processes outside the bench used.
    others: f64,
    /// Cores that the hypervisor withheld.
    stolen: f64,
    report: Report,
}

impl Try {
    fn to_json(&self) -> Value {
        json!({
            "system": self.system.name(),
            "scenario": self.scenario.title(),
            "unit": self.scenario.unit(),
            "cpu_us_per_unit": self.cost,
            "cpu_us_per_unit_by_ticks": self.cost_by_ticks,
            "lacks_ended_threads": self.doubtful,
            "system_cores": self.cores,
            "other_cores": self.others,
            "stolen_cores": self.stolen,
            "report": self.report.to_json(),
        })
    }
}

/// Runs the comparison, prints its tables, and writes the JSON where asked to.
///
/// # Errors
/// Where the bench itself cannot run, was interrupted, or a system that is installed failed; the tables of what was
/// measured are printed in the last case too.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let folder = tempfile::tempdir().context("failed to create a temporary folder")?;
    let mut skipped = Vec::new();
    let mut systems = options.systems.clone();
    systems.retain(|system| match system.missing(&options.conductor) {
        None => true,
        Some(reason) => {
            skipped.push(format!("{}: {reason}", system.name()));
            false
        }
    });
    affinity::pin_to(options.load_core)?;
    let (backends, addresses) = start_backends(options, folder.path())?;
    let bench = Bench {
        options,
        interrupt,
        folder: folder.path(),
        backends: &backends,
        addresses: &addresses,
    };
    let mut tries = Vec::new();
    let mut failed = Vec::new();
    for round in 1..=options.rounds {
        for system in systems.clone() {
            eprintln!("round {round}/{}: {}", options.rounds, system.name());
            if let Err(error) = bench.measure(system, &mut tries) {
                anyhow::ensure!(!interrupt.is_set(), "interrupted");
                failed.push(format!("{} failed: {error:#}", system.name()));
                systems.retain(|other| *other != system);
            }
        }
    }
    let summary = Summary::new(options, &tries, skipped, failed);
    print!("{}", summary.to_markdown());
    if let Some(file) = &options.json {
        let json = summary.to_json(tries.iter().map(Try::to_json).collect());
        std::fs::write(file, format!("{json:#}\n"))
            .with_context(|| format!("failed to write `{}`", file.display()))?;
    }
    anyhow::ensure!(summary.failed().is_empty(), "{}", summary.failed().join("\n"));
    Ok(())
}

fn start_backends(options: &Options, folder: &Path) -> Result<(Running, Vec<SocketAddr>)> {
    let program = std::env::current_exe().context("failed to find this program's own file")?;
    let mut command = Command::new(program);
    command.args([
        "backends",
        "--with-parent",
        "--count",
        &options.backends.to_string(),
    ]);
    command.args(["--spacing-us", &TOKEN_SPACING_US.to_string()]);
    let log = folder.join("backends.log");
    let mut backends = Running::start(options.load_core, "backends", &mut command, log, true)?;
    let addresses = backends.printed_addresses(usize::from(options.backends))?;
    Ok((backends, addresses))
}

struct Bench<'a> {
    options: &'a Options,
    interrupt: &'a Interrupt,
    folder: &'a Path,
    backends: &'a Running,
    addresses: &'a [SocketAddr],
}

impl Bench<'_> {
    /// Starts a system afresh and puts each load on it.
    fn measure(&self, system: System, tries: &mut Vec<Try>) -> Result<()> {
        let folder = tempfile::tempdir_in(self.folder).context("failed to create a temporary folder")?;
        let options = self.options;
        let site = Site {
            conductor: &options.conductor.canonicalize().unwrap_or_default(),
            folder: folder.path(),
            core: options.router_core,
            backends: self.addresses,
        };
        let mut ready = system.start(&site, || self.interrupt.is_set())?;
        let measured = ready.process.as_ref().map_or(self.backends.id(), Running::id);
        for scenario in &options.scenarios {
            let plan = Plan {
                target: ready.target,
                prompt: system.prompt(),
                body_bytes: if *scenario == Scenario::Kib32 {
                    32 * 1024
                } else {
                    1024
                },
                stream_tokens: (*scenario == Scenario::Sse).then_some(200),
                connections: options.connections,
                rate: None,
                warm_up: seconds(options.warm_up_s)?,
                window: seconds(options.window_s)?,
                patience: PATIENCE,
            };
            let done = self.try_once(system, *scenario, &plan, measured)?;
            eprintln!(
                "    {}: {:.1} us of CPU per {}, {:.0} req/s",
                scenario.title(),
                done.cost,
                scenario.unit(),
                done.report.rate()
            );
            tries.push(done);
            if let Some(process) = &mut ready.process {
                process.ensure_alive()?;
            }
        }
        Ok(())
    }

    fn try_once(&self, system: System, scenario: Scenario, plan: &Plan, measured: u32) -> Result<Try> {
        let mut readings = Vec::with_capacity(2);
        let edge = |_: Edge| {
            // The machine's clock last and first would differ by less than a tick: the order does not matter.
            let reading = (
                TreeClock::read(measured)?,
                TreeClock::read(std::process::id())?,
                MachineClock::read()?,
            );
            readings.push(reading);
            Ok(())
        };
        let report = generate::run(plan, edge, || self.interrupt.is_set())?;
        let [opened, closed] = &readings[..] else {
            anyhow::bail!("the window was not measured at both ends")
        };
        let spent = closed.0.since(&opened.0);
        let bench = closed.1.since(&opened.1);
        let (busy, stolen) = closed.2.since(opened.2);
        let units = scenario.units(&report);
        anyhow::ensure!(
            units > 0,
            "no {} was answered: {:?}",
            scenario.unit(),
            report.errors
        );
        let elapsed = report.elapsed.as_secs_f64();
        let per_unit = |time: Duration| time.as_secs_f64() * 1e6 / units as f64;
        Ok(Try {
            system,
            scenario,
            cost: per_unit(spent.precise),
            cost_by_ticks: per_unit(spent.by_ticks),
            doubtful: spent.is_doubtful(),
            cores: spent.precise.as_secs_f64() / elapsed,
            others: busy.saturating_sub(bench.by_ticks).as_secs_f64() / elapsed,
            stolen: stolen.as_secs_f64() / elapsed,
            report,
        })
    }
}

fn seconds(value: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(value).with_context(|| format!("`{value}` is no duration"))
}
