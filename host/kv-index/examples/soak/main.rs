//! A long random run of the index against the reference model of `tests/naive`: every event must have the same effect
//! and every question the same answer. `cargo run --release -p kv-index --example soak -- --events 100000000`
//!
//! Events are counted as blocks that were stored or removed (an event that names none counts 1). A tenth as many follow
//! with too little room, where the claim is only that no answer is larger than the model's. A failure is shrunk,
//! printed with its seed, and ends the program with status 1. `--seed`, `--threads`: 1 and 2 by default.

#[path = "../../tests/naive/mod.rs"]
mod naive;

mod mixes;
mod runner;

use std::process::ExitCode;
use std::time::Instant;

use naive::run::Claim;
use runner::{Failure, Plan, Tally, soak};

struct Options {
    events: u64,
    seed: u64,
    threads: u64,
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("usage: soak [--events N] [--seed N] [--threads N]");
        return ExitCode::from(2);
    };
    let parts = [
        (Claim::Equal, options.events),
        (Claim::NeverMore, options.events / 10),
    ];
    for (claim, events) in parts {
        let start = Instant::now();
        match run_threads(claim, events, &options) {
            Ok(tally) => print!("{}", tally.report(claim, start.elapsed())),
            Err(failure) => {
                println!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn options() -> Option<Options> {
    let mut options = Options {
        events: 10_000_000,
        seed: 1,
        threads: 2,
    };
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next()?.parse().ok()?;
        match &*name {
            "--events" => options.events = value,
            "--seed" => options.seed = value,
            "--threads" => options.threads = value.max(1),
            _ => return None,
        }
    }
    Some(options)
}

/// Runs the threads. Each has an index, a model and a seed of its own.
fn run_threads(claim: Claim, events: u64, options: &Options) -> Result<Tally, Box<Failure>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads)
            .map(|thread| {
                let plan = Plan {
                    claim,
                    events: events / options.threads,
                    seed: options.seed * 1000 + thread,
                };
                scope.spawn(move || soak(plan))
            })
            .collect();
        let mut all = Tally::default();
        for thread in threads {
            all.add(
                &thread
                    .join()
                    .expect("a panic of the index is a failure of its own")?,
            );
        }
        Ok(all)
    })
}
