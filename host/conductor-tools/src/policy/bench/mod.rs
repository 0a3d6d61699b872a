//! `conductor policy bench`: what a decision costs, by the number of candidates, beside policies whose cost is known.

mod clock;

use std::fmt;
use std::time::Duration;

use policy_runtime::{PolicyEngine, PolicySettings, SyntheticCall};
use routing::{LeastLoaded, Policy, check};
use serde::Serialize;
use thiserror::Error;

use self::clock::{TimedBatch, Timing, time_in_turns};
use super::component::ComponentFile;
use super::diagnostic::Diagnostic;
use super::progress::StepProgress;
use super::{engine, print, settings};
use crate::args::SubjectArgs;
use crate::{Exit, UsageError};
use operator_tools::table::{Side, Table};
use policy_store::builtin::{self, Builtin};

/// Fleets of so many candidates.
const SIZES: [usize; 4] = [8, 64, 256, 1024];
/// The built-in policies it is compared with: the least and the most that one does.
const YARDSTICKS: [&str; 2] = ["round-robin", "cache-aware"];
/// CPU limit of a timed decision. A slow decision is measured too, instead of ended.
const PATIENCE: Duration = Duration::from_secs(1);

/// A policy failed while it was timed.
#[derive(Debug, Error)]
#[error("failed to time `{policy}` with {candidates} candidates: {what}; see `conductor policy check`")]
struct NotTimed {
    policy: String,
    candidates: usize,
    what: String,
}

/// Times a policy.
///
/// # Errors
/// Where it, its settings or the runtime cannot be had, or a decision fails.
pub(super) fn run(args: &SubjectArgs) -> anyhow::Result<Exit> {
    let subject = ComponentFile::find(&args.policy).map_err(UsageError::new)?;
    let given = match settings::read(&args.settings, &subject.name).map_err(UsageError::new)? {
        Ok(given) => given,
        Err(mistakes) => return Ok(not_loaded(&mistakes)),
    };
    let engine = engine()?;
    let progress = StepProgress::begin();
    progress.part(&format!("{}: compiling", subject.name));
    let settings = patient(given.settings.clone());
    let policy = match engine.load(&subject.name, &subject.bytes, &settings, Default::default()) {
        Ok(policy) => policy,
        Err(error) => {
            return Ok(not_loaded(&Diagnostic::not_loaded(
                &error,
                given.configured.as_ref(),
            )));
        }
    };
    let mut contestants: Vec<(String, Box<dyn Policy>)> = vec![(subject.name.clone(), Box::new(policy))];
    for builtin in YARDSTICKS.into_iter().filter_map(builtin::find) {
        contestants.push((format!("builtin {}", builtin.name), yardstick(&engine, builtin)?));
    }
    contestants.push(("native least-loaded".to_owned(), Box::new(LeastLoaded::default())));
    let report = BenchReport {
        policy: subject.label,
        optimised: !cfg!(debug_assertions),
        rows: (SIZES.into_iter())
            .map(|candidates| {
                progress.part(&format!("timing decisions with {candidates} candidates"));
                BenchRow::of(candidates, &contestants)
            })
            .collect::<Result<_, _>>()?,
    };
    drop(progress);
    print(&report, args.json)?;
    Ok(Exit::Success)
}

fn not_loaded(findings: &[Diagnostic]) -> Exit {
    for finding in findings {
        eprint!("{finding}");
    }
    Exit::Failure
}

/// Returns the settings with ample time limits.
fn patient(settings: PolicySettings) -> PolicySettings {
    PolicySettings {
        cpu_budget: PATIENCE,
        wall_limit: PATIENCE * 10,
        ..settings
    }
}

fn yardstick(engine: &PolicyEngine, builtin: &Builtin) -> anyhow::Result<Box<dyn Policy>> {
    let settings = patient(PolicySettings::default());
    let policy = engine.load(builtin.name, builtin.bytes, &settings, Default::default())?;
    Ok(Box::new(policy))
}

/// Report of a benchmark.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct BenchReport {
    policy: String,
    /// Set if this binary was built with optimisations. Otherwise the host's part of a call takes longer than in a
    /// router.
    optimised: bool,
    rows: Vec<BenchRow>,
}

/// One size of fleet.
#[derive(Debug, Serialize)]
struct BenchRow {
    candidates: usize,
    timings: Vec<TimingReport>,
}

/// One policy over it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct TimingReport {
    policy: String,
    /// Nanoseconds a decision, in the best batch.
    best_ns: f64,
    /// Time of the median batch.
    median_ns: f64,
    /// Number of decisions that the native fallback could have made in the best time.
    times_native: f64,
}

impl BenchRow {
    fn of(candidates: usize, contestants: &[(String, Box<dyn Policy>)]) -> Result<Self, NotTimed> {
        let mut batches = Vec::new();
        for (name, policy) in contestants {
            let call = SyntheticCall::usual(policy.plan(), candidates);
            let mut seq = 0;
            let batch = TimedBatch::new(move || {
                seq += 1;
                let request = call.request(seq);
                let verdict = policy
                    .decide(&call.input(&request))
                    .map_err(|fault| fault.to_string())?;
                check(verdict, call.offer())
                    .map(drop)
                    .map_err(|nonsense| nonsense.to_string())
            });
            batches.push(batch.map_err(|what| NotTimed {
                policy: name.clone(),
                candidates,
                what,
            })?);
        }
        let timings = time_in_turns(batches).map_err(|(position, what)| NotTimed {
            policy: contestants[position].0.clone(),
            candidates,
            what,
        })?;
        let native = timings.last().map_or(f64::NAN, |timing| timing.best_ns);
        let named = contestants.iter().zip(timings);
        Ok(Self {
            candidates,
            timings: named
                .map(|((name, _), Timing { best_ns, median_ns })| TimingReport {
                    policy: name.clone(),
                    best_ns,
                    median_ns,
                    times_native: best_ns / native,
                })
                .collect(),
        })
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.optimised {
            writeln!(
                f,
                "note: this is a debug build: the host's part of a call is many times slower than in a release build"
            )?;
        }
        writeln!(
            f,
            "nanoseconds a decision, the best batch (the median), and its multiple of the native fallback\n"
        )?;
        let mut columns = vec![("policy".to_owned(), Side::Left)];
        for row in &self.rows {
            columns.push((format!("{} candidates", row.candidates), Side::Right));
        }
        let columns: Vec<(&str, Side)> = columns
            .iter()
            .map(|(name, side)| (name.as_str(), *side))
            .collect();
        let mut table = Table::new(&columns);
        let policies = self.rows.first().map_or(0, |row| row.timings.len());
        for position in 0..policies {
            let timings = self.rows.iter().map(|row| &row.timings[position]);
            let mut cells = vec![self.rows[0].timings[position].policy.clone()];
            cells.extend(timings.map(|timing| {
                format!(
                    "{:.0} ({:.0}) x{:.1}",
                    timing.best_ns, timing.median_ns, timing.times_native
                )
            }));
            table.row(cells);
        }
        table.fmt(f)
    }
}
