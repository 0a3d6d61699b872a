//! `conductor simulate`: what policies would have done with a trace of requests, on a model of a cluster
//! (`host/adr/0013-simulator.md`). The components are the server's own, loaded by the server's loader; only time is
//! not.

mod accuracy;
mod breakdowns;
mod cluster;
mod compare;
mod contestant;
mod estimate;
mod figures;
mod grid;
mod html;
mod jobs;
mod progress;
mod recorded;
mod report;
mod setting;
mod sharing;
mod source;
mod verdict;
mod watched;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};

use self::contestant::Contestant;
use self::grid::{Grid, KeptData};
use self::html::Page;
pub use self::jobs::{JobReport, SimulatedPolicy, SimulationJobs, SimulationOrder, StartJobError};
use self::recorded::RecordedTrace;
pub use self::recorded::{LogAccuracy, MeasuredFigure};
use self::report::SimulationReport;
use self::setting::Setting;
use crate::args::SimulateArgs;
use crate::print;
use crate::{Exit, UsageError};

/// Runs every policy at every speed with every seed.
///
/// # Errors
/// If a policy, its parameters or the trace cannot be read, the arguments do not fit together, or the page
/// cannot be written.
pub fn run(args: &SimulateArgs) -> anyhow::Result<Exit> {
    // With a log there is the policy that decided.
    check_compared(args, args.policies.len() + usize::from(!args.log.is_empty()))?;
    if let Some(path) = &args.html {
        check(path).map_err(UsageError::new)?;
    }
    if args.job {
        jobs::limit_process()?;
    }
    let recorded = RecordedTrace::read(args).map_err(UsageError::new)?;
    let setting = Setting::of(args, recorded.as_ref()).map_err(UsageError::new)?;
    let contestants = match &recorded {
        Some(recorded) => recorded.contestants(&args.policies)?,
        None => Contestant::all(&args.policies)?,
    };
    // The policy of the log may be the only named one, or not available.
    check_compared(args, contestants.len())?;
    let grid = Arc::new(Grid {
        setting,
        contestants,
        speeds: args.speeds.clone(),
        seeds: (args.seed..).take(args.seeds as usize).collect(),
        keep: KeptData {
            ttft: args.compare,
            curves: args.html.is_some(),
        },
        is_job: args.job,
    });
    let made = grid::run(&grid)?;
    let recording = recorded.map(|recorded| recorded.report(&grid.contestants, &grid.setting.spec));
    let mut report = SimulationReport::of(&grid, made, recording.transpose()?)?;
    report.shows_breakdown = args.breakdown;
    print::print(&report, &report, args.json)?;
    if let Some(path) = &args.html {
        fs::write(path, Page::of(&report)?.to_string())
            .with_context(|| format!("failed to write the page `{}`", path.display()))?;
    }
    Ok(match (report.complete, report.has_faults()) {
        (false, _) => Exit::Interrupted,
        (true, true) => Exit::Failure,
        (true, false) => Exit::Success,
    })
}

/// Checks that there are enough policies to compare.
fn check_compared(args: &SimulateArgs, policies: usize) -> Result<(), UsageError> {
    // A job compares as many as it has.
    match args.compare && !args.job && policies < 2 {
        true => Err(UsageError::new(anyhow!(
            "failed to compare: --compare needs at least two policies, the first is what the others are compared with"
        ))),
        false => Ok(()),
    }
}

/// Checks that the page can be written, before hours of runs.
fn check(page: &Path) -> anyhow::Result<()> {
    let folder = page.parent().filter(|folder| !folder.as_os_str().is_empty());
    let has_folder = folder.is_none_or(Path::is_dir);
    match has_folder && !page.is_dir() {
        true => Ok(()),
        false => Err(anyhow!(
            "failed to take --html `{}`: it must be a file in a folder that exists",
            page.display()
        )),
    }
}
