//! `conductor simulate`: what policies would have done with a trace of requests, on a model of a cluster (`host/adr/0013-simulator.md`).
//! The components are the server's own, loaded by the server's loader; only time is not.

mod contestant;
mod grid;
mod report;
mod setting;
mod watched;

use std::thread::available_parallelism;

use self::contestant::Contestant;
use self::grid::Cell;
use self::report::Report;
use self::setting::Setting;
use crate::cli::SimulateArgs;
use crate::exit::Exit;
use crate::print;

/// Runs every policy at every speed.
///
/// # Errors
/// Where a policy, its parameters or the trace cannot be had, or the arguments do not go together.
pub fn run(args: &SimulateArgs) -> anyhow::Result<Exit> {
    let setting = Setting::of(args)?;
    let contestants = Contestant::all(&args.policies)?;
    let mut cells = Vec::new();
    for speed in &args.speeds {
        for contestant in &contestants {
            cells.push(Cell {
                contestant,
                speed: *speed,
            });
        }
    }
    let threads = available_parallelism().map_or(1, usize::from);
    let rows = grid::run(&cells, &setting, threads)?;
    let report = Report::of(&setting, rows);
    print::print(&report, &report, args.json)?;
    Ok(match report.has_faults() {
        true => Exit::Failure,
        false => Exit::Success,
    })
}
