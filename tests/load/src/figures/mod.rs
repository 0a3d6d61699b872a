//! Every figure that a router is measured by, of Conductor, of proxies and of other routers, in one run: CPU, latency,
//! throughput, memory, start and end.

mod table;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::interrupt::Interrupt;
use crate::proxy_cpu::{Bench, Scenario, Setting, Summary, System, write_json};
use table::Figures;

/// Arguments of the run.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    setting: Setting,
    /// Conductor's configuration in the comparison.
    #[arg(long, value_enum, default_value_t = System::CacheAwareLive)]
    ours: System,
    /// Numbers of workers that the cost per request of ours is measured at too.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 256])]
    fleets: Vec<u16>,
    /// Leave out the peers' cache-aware policies, which no row needs.
    #[arg(long)]
    short: bool,
    /// Also write every try and the medians to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs everything, prints the table of figures and a table for each load, and optionally writes the JSON.
///
/// # Errors
/// The bench cannot run, was interrupted, or an installed system failed. In the last case too the tables of the
/// measurements are printed.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let folder = tempfile::tempdir().context("failed to create a temporary folder")?;
    let mut bench = Bench::start(options.setting.clone(), folder.path(), interrupt)?;
    let loads = [
        Scenario::Kib1,
        Scenario::Kib32,
        Scenario::Turn32,
        Scenario::Sse,
        Scenario::Burst,
        Scenario::One,
        Scenario::Paced,
    ];
    let mut systems = vec![System::Direct, System::Nginx, System::Haproxy];
    systems.extend(System::PEERS);
    if !options.short {
        systems.extend([System::VllmCache, System::SglangCache, System::SmgCache]);
    }
    systems.extend([System::RoundRobin, options.ours]);
    let mut notes = bench.rounds(&systems, &loads)?;
    let mut also = |bench: &mut Bench<'_>, systems: &[System], load| {
        let more = bench.rounds(systems, &[load])?;
        notes.skipped.extend(more.skipped);
        notes.failed.extend(more.failed);
        anyhow::Ok(())
    };
    // The cost of logging: what is on by default, and the same without.
    also(
        &mut bench,
        &[System::CacheAwareLiveWarn, System::VllmRrInfo],
        Scenario::Kib1,
    )?;
    // A system that held ten thousand streams is not idle at its end: those lives are not counted.
    let mut lives = std::mem::take(&mut bench.lives);
    // A proxy that holds ten thousand streams would disturb what is measured after it: last.
    also(&mut bench, &[System::Nginx, options.ours], Scenario::Held)?;
    let mut tries = std::mem::take(&mut bench.tries);
    let setting = bench.setting.clone();
    drop(bench);
    for workers in &options.fleets {
        let setting = Setting {
            backends: *workers,
            ..setting.clone()
        };
        let mut bench = Bench::start(setting, folder.path(), interrupt)?;
        also(&mut bench, &[System::Nginx, options.ours], Scenario::Kib1)?;
        tries.append(&mut bench.tries);
        lives.append(&mut bench.lives);
    }
    let figures = Figures::new(&tries, &lives, options.ours, setting.backends);
    let summary = Summary::new(&setting, &Scenario::ALL, &tries, notes);
    println!(
        "{}\n\n{}",
        figures.to_markdown(&options.fleets),
        summary.to_markdown()
    );
    let mut json = summary.to_json(&tries, &lives);
    json["figures"] = figures.to_json(&options.fleets);
    write_json(options.json.as_ref(), &json)?;
    anyhow::ensure!(summary.failed().is_empty(), "{}", summary.failed().join("\n"));
    Ok(())
}
