//! One system after the other: started, warmed up, put under a load, and ended.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use super::child::Running;
use super::processor::{MachineClock, TreeClock, resident_bytes};
use super::scenario::Scenario;
use super::system::{Site, System};
use crate::affinity;
use crate::backends::kv::Publishers;
use crate::generate::{self, Edge, Plan, Report};
use crate::interrupt::Interrupt;
use crate::readiness::Waiting;
use bench_vocabulary as vocabulary;

/// The pause between two tokens of the streams, in microseconds: a quick model's pace.
const TOKEN_SPACING_US: u64 = 10_000;
/// Connections are closed for good after so long.
const QUIET: Duration = Duration::from_millis(300);

/// Options of all runs.
#[derive(Debug, Clone, Args)]
pub struct Setting {
    /// Conductor's binary, built with `cargo build --release -p conductor`.
    #[arg(long, value_name = "PATH", default_value = "target/release/conductor")]
    pub(crate) conductor: PathBuf,
    /// A folder with the programs of peers, looked into before PATH.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) peers: Option<PathBuf>,
    /// Number of measurements per system; tables show medians.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
    /// Seconds of load before each measured window.
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub(crate) warm_up_s: f64,
    /// Seconds of each measured window.
    #[arg(long, value_name = "S", default_value_t = 4.0)]
    pub(crate) window_s: f64,
    /// Keep-alive connections.
    #[arg(long, default_value_t = 64)]
    pub(crate) connections: usize,
    /// Number of streams of `held`; fewer if the limit of open files is too low.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) held: usize,
    /// Number of backends.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) backends: u16,
    /// The core of the generator and the backends.
    #[arg(long, default_value_t = 0)]
    pub(crate) load_core: usize,
    /// The core of the system under test; several, separated by commas, to compare threads.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub(crate) router_core: Vec<usize>,
    /// Let the generator and the backends sleep while nothing is there. They poll otherwise: each wake-up of a
    /// sleeping core is charged to the system, and the slower the system, the more of them.
    #[arg(long)]
    pub(crate) sleep: bool,
}

impl Setting {
    /// Returns the behaviour of the generator and the backends while nothing is there.
    pub(crate) fn waiting(&self) -> Waiting {
        Waiting::poll_if(!self.sleep)
    }
}

/// A system with so many backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) system: System,
    pub(crate) workers: u16,
}

/// One system under one load, once.
pub(crate) struct Try {
    pub(crate) subject: Subject,
    pub(crate) scenario: Scenario,
    /// CPU time per unit, in microseconds.
    pub(crate) cost: f64,
    /// CPU time by the coarse clock, which includes ended threads.
    pub(crate) cost_by_ticks: f64,
    /// The two differ so much that the precise one lacks ended threads.
    pub(crate) doubtful: bool,
    /// Cores that the system used.
    pub(crate) cores: f64,
    /// Cores that processes outside the bench used.
    pub(crate) others: f64,
    /// Cores that the hypervisor withheld.
    pub(crate) stolen: f64,
    /// Memory of the system at the end, in bytes.
    pub(crate) resident: u64,
    pub(crate) report: Report,
}

impl Try {
    /// Returns a quantile of the latency, in microseconds; NaN without answers. For bursts it is that of the first
    /// token.
    pub(crate) fn latency(&self, quantile: f64) -> f64 {
        let of = match self.scenario {
            Scenario::Burst => &self.report.first_byte,
            _ => &self.report.latency,
        };
        of.micros(quantile).unwrap_or(f64::NAN)
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "system": self.subject.system.name(),
            "workers": self.subject.workers,
            "scenario": self.scenario.title(),
            "unit": self.scenario.unit(),
            "cpu_us_per_unit": self.cost,
            "cpu_us_per_unit_by_ticks": self.cost_by_ticks,
            "lacks_ended_threads": self.doubtful,
            "system_cores": self.cores,
            "other_cores": self.others,
            "stolen_cores": self.stolen,
            "resident_bytes": self.resident,
            "report": self.report.to_json(),
        })
    }
}

/// One start of a system, from its process's beginning to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    pub(crate) subject: Subject,
    /// Time from the start of the process to its first answer.
    pub(crate) start: Duration,
    /// Memory once it has answered and, if it has an index, filled that, in bytes.
    pub(crate) resident: u64,
    /// Time from SIGTERM to its end, without a connection.
    pub(crate) exit: Duration,
}

impl Life {
    pub(crate) fn to_json(self) -> Value {
        json!({
            "system": self.subject.system.name(),
            "workers": self.subject.workers,
            "start_ms": self.start.as_secs_f64() * 1e3,
            "exit_ms": self.exit.as_secs_f64() * 1e3,
            "resident_bytes": self.resident,
        })
    }
}

/// Bound bench: backends that serve, and the measurements so far.
pub(crate) struct Bench<'a> {
    pub(crate) setting: Setting,
    interrupt: &'a Interrupt,
    folder: &'a Path,
    conductor: PathBuf,
    backends: Running,
    addresses: Vec<SocketAddr>,
    kv_events: Vec<String>,
    pub(crate) tries: Vec<Try>,
    pub(crate) lives: Vec<Life>,
}

impl<'a> Bench<'a> {
    /// Starts the backends and writes a tokenizer to `folder`; the calling thread is pinned.
    pub(crate) fn start(mut setting: Setting, folder: &'a Path, interrupt: &'a Interrupt) -> Result<Self> {
        let count = setting.backends;
        let most = most_streams();
        if setting.held > most {
            eprintln!(
                "{} streams are held, not {}: the limit of open files allows a proxy no more",
                most, setting.held
            );
            setting.held = most;
        }
        affinity::pin_to(setting.load_core)?;
        vocabulary::write_tokenizer(&folder.join("tokenizer"))?;
        let program = std::env::current_exe().context("failed to find this program's own file")?;
        let mut command = Command::new(program);
        command.args([
            "backends",
            "--with-parent",
            "--kv-events",
            "--count",
            &count.to_string(),
        ]);
        command.args(["--spacing-us", &TOKEN_SPACING_US.to_string()]);
        if setting.waiting() == Waiting::Poll {
            command.arg("--poll");
        }
        let log = folder.join("backends.log");
        let mut backends = Running::start(&[setting.load_core], "backends", &mut command, log, true)?;
        let lines = backends.printed_lines(2 * usize::from(count))?;
        let (urls, endpoints) = lines.split_at(usize::from(count));
        let address = |url: &String| {
            let address = url
                .strip_prefix("http://")
                .and_then(|address| address.parse().ok());
            address.with_context(|| format!("`{url}` is not an address"))
        };
        Ok(Self {
            conductor: setting.conductor.canonicalize().unwrap_or_default(),
            setting,
            interrupt,
            folder,
            backends,
            addresses: urls.iter().map(address).collect::<Result<_>>()?,
            kv_events: endpoints.to_vec(),
            tries: Vec::new(),
            lives: Vec::new(),
        })
    }

    /// Starts a system afresh, puts each load on it, and ends it.
    pub(crate) fn measure(&mut self, system: System, scenarios: &[Scenario]) -> Result<()> {
        let workers = self.setting.backends;
        let subject = Subject { system, workers };
        let folder = tempfile::tempdir_in(self.folder).context("failed to create a temporary folder")?;
        let site = Site {
            conductor: &self.conductor,
            peers: self.setting.peers.as_deref(),
            folder: folder.path(),
            tokenizer: &self.folder.join("tokenizer"),
            cores: &self.setting.router_core,
            backends: &self.addresses,
            kv_events: &self.kv_events,
            blocks: Publishers::blocks(workers),
        };
        let mut ready = system.start(&site, || self.interrupt.is_set())?;
        let measured = ready.process.as_ref().map_or(self.backends.id(), Running::id);
        let resident = resident_bytes(measured)?;
        for scenario in scenarios {
            let plan = scenario.plan(ready.target, system.prompt(), &self.setting)?;
            let done = self.try_once(subject, *scenario, &plan, measured)?;
            eprintln!(
                "    {}: {:.1} us of CPU per {}, {:.0} req/s",
                scenario.title(),
                done.cost,
                scenario.unit(),
                done.report.rate()
            );
            self.tries.push(done);
            if let Some(process) = &mut ready.process {
                process.ensure_alive()?;
            }
        }
        if let Some(process) = ready.process {
            std::thread::sleep(QUIET);
            self.lives.push(Life {
                subject,
                start: ready.took,
                resident,
                exit: process.end()?,
            });
        }
        Ok(())
    }

    /// Returns the reason why a system cannot be run here, if there is one.
    pub(super) fn missing(&self, system: System) -> Option<String> {
        system.missing(&self.conductor, self.setting.peers.as_deref())
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.is_set()
    }

    fn try_once(&self, subject: Subject, scenario: Scenario, plan: &Plan, measured: u32) -> Result<Try> {
        let mut readings = Vec::with_capacity(2);
        let mut resident = 0;
        let edge = |_: Edge| {
            // The machine's clock last and first would differ by less than a tick: the order does not matter.
            let reading = (
                TreeClock::read(measured)?,
                TreeClock::read(std::process::id())?,
                MachineClock::read()?,
            );
            readings.push(reading);
            resident = resident_bytes(measured)?;
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
            subject,
            scenario,
            cost: per_unit(spent.precise),
            cost_by_ticks: per_unit(spent.by_ticks),
            doubtful: spent.is_doubtful(),
            cores: spent.precise.as_secs_f64() / elapsed,
            others: busy.saturating_sub(bench.by_ticks).as_secs_f64() / elapsed,
            stolen: stolen.as_secs_f64() / elapsed,
            resident,
            report,
        })
    }
}

/// Returns the maximum number of streams. A proxy has two sockets for each stream, and some more.
fn most_streams() -> usize {
    let limit = crate::open_files::raise();
    usize::try_from(limit.saturating_sub(200) / 2).unwrap_or(usize::MAX)
}
