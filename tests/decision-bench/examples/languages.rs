//! `cargo run --release -p decision-bench --example languages -- FOLDER`: the table of
//! `policy-sdk/templates/README.md`. Size, compilation, a fresh instance and a decision of every component in that
//! folder, each of which must be the scheduler of the templates.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use decision_bench::Crossing;
use policy_runtime::{EngineLimits, LoadReport, PolicyEngine, PolicySettings, WasmPolicy};

const CANDIDATES: [usize; 3] = [16, 256, 1024];
/// Number of loads per component; the minimum of each time counts.
const LOADS: usize = 5;
/// Number of timings, and approximate length of one. The minimum counts: other processes only make a timing longer.
const TIMINGS: usize = 50;
const TIMING: Duration = Duration::from_millis(10);
/// The first calls make the instance and its memory.
const WARM_UP: u64 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("name a folder with components")?;
    let mut paths = std::fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<PathBuf>, std::io::Error>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "wasm"));
    paths.sort_by_key(|path| std::fs::metadata(path).map_or(0, |file| file.len()));
    println!(
        "| language | size | compile | fresh instance | 16 candidates | 256 candidates | 1,024 candidates |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for path in paths {
        println!("{}", row(&path)?);
    }
    Ok(())
}

/// Returns one line of the table.
fn row(path: &Path) -> Result<String, Box<dyn Error>> {
    let bytes = std::fs::read(path)?;
    let engine = PolicyEngine::new(EngineLimits::default())?;
    let load = || engine.load("measured", &bytes, &settings(), Arc::default());
    let mut reports = Vec::new();
    for _ in 0..LOADS {
        reports.push(*load()?.report());
    }
    let least = |of: fn(&LoadReport) -> Duration| reports.iter().map(of).min().unwrap_or_default();
    let mut line = format!(
        "| {} | {:.1} KiB | {:.1} ms | {:.0} us |",
        path.file_stem().unwrap_or_default().display(),
        bytes.len() as f64 / 1024.0,
        least(|report| report.compiled_in).as_secs_f64() * 1e3,
        least(|report| report.instantiated_in).as_secs_f64() * 1e6,
    );
    for candidates in CANDIDATES {
        line += &format!(" {:.0} ns |", decision(load()?, candidates)?.as_secs_f64() * 1e9);
    }
    Ok(line)
}

/// Settings for interpreters; they cost the others nothing.
fn settings() -> PolicySettings {
    PolicySettings {
        cpu_budget: Duration::from_millis(20),
        wall_limit: Duration::from_secs(1),
        memory_bytes: 64 << 20,
        ..PolicySettings::default()
    }
}

/// Returns the time of one decision on a warm instance.
fn decision(policy: WasmPolicy, candidates: usize) -> Result<Duration, Box<dyn Error>> {
    let numbers = (0..candidates).flat_map(|worker| [(worker * 7919 % 23) as f64, 1.0]);
    let crossing = Crossing::over(policy, numbers.collect(), candidates);
    let mut seq = 0;
    let mut time = |calls: u64| -> Result<Duration, Box<dyn Error>> {
        let start = Instant::now();
        for _ in 0..calls {
            seq += 1;
            crossing.call(seq)?;
        }
        Ok(start.elapsed())
    };
    let once = time(WARM_UP)?.as_secs_f64() / WARM_UP as f64;
    let calls = (TIMING.as_secs_f64() / once.max(1e-9)).clamp(2.0, 1e6) as u64;
    let mut least = Duration::MAX;
    for _ in 0..TIMINGS {
        least = least.min(time(calls)?.div_f64(calls as f64));
    }
    Ok(least)
}
