//! Churn run: connections, workers and policies come and go. The router's memory is read every minute, and checked to
//! be flat.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use harness::Random;
use tokio::task::JoinSet;

use super::account::Account;
use super::client::Clients;
use super::fleet::Fleet;
use super::router::Router;
use super::trouble::Record;
use super::{Options, block_on};
use crate::interrupt::Interrupt;

const SAMPLE_EVERY: Duration = Duration::from_secs(60);
/// Minimum length of a run with a result: pools, caches and connections are still being filled before.
const SHORTEST: Duration = Duration::from_secs(15 * 60);
/// Memory is flat where, in the second half, it grows by less than this share of itself in an hour.
const FLAT: f64 = 0.05;

/// Memory at one time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    resident_kib: u64,
    proportional_kib: u64,
    open_files: usize,
}

/// Runs it and prints memory over time.
///
/// # Errors
/// Where it cannot run or was interrupted, the router ended, a request failed, or memory grew.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    block_on(play(options, interrupt))
}

async fn play(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let fleet = Fleet::start(options.workers, options.seed).await?;
    let mut router = Router::start(options, &fleet).await?;
    let account = Arc::new(Account::new(Arc::<Record>::default()));
    let over = Arc::<AtomicBool>::default();
    let mut sending = JoinSet::new();
    // Half of the clients keep their connections, the others make a new one for each request.
    for keep in [true, false] {
        let clients = Clients::new(
            router.target,
            keep,
            options.rate / 2.0,
            options.seed,
            Arc::clone(&account),
        );
        let is_over = Arc::clone(&over);
        sending.spawn(Arc::new(clients).run(options.seed + u64::from(keep), move || {
            is_over.load(Ordering::Relaxed)
        }));
    }
    let started = Instant::now();
    let length = Duration::try_from_secs_f64(options.minutes * 60.0).context("--minutes")?;
    let every = SAMPLE_EVERY.min(length / 8);
    let (mut random, mut samples, mut changes) = (Random::new(options.seed), Vec::new(), 0);
    let mut next = every;
    while started.elapsed() < length {
        tokio::time::sleep(random.ms(100, 900)).await;
        anyhow::ensure!(!interrupt.is_set(), "interrupted");
        router.ensure_alive()?;
        changes += 1;
        if changes % 2 == 0 {
            router.swap(changes)?;
        } else {
            router.edit(&fleet, &fleet.other(&mut random, fleet.engines.len() / 2))?;
        }
        if started.elapsed() >= next {
            next += every;
            let (resident_kib, proportional_kib) = router.memory()?;
            let sample = Sample {
                at: started.elapsed(),
                resident_kib,
                proportional_kib,
                open_files: router.open_files(),
            };
            eprintln!(
                "after {:.0?}: RSS {resident_kib} KiB, PSS {proportional_kib} KiB; {}",
                sample.at,
                account.in_short()
            );
            samples.push(sample);
        }
    }
    over.store(true, Ordering::Relaxed);
    while sending.join_next().await.is_some() {}
    router.ensure_alive()?;
    println!("{}\n{changes} edits and swaps.\n", account.to_markdown());
    let (report, flat) = report(&samples);
    println!("{report}");
    anyhow::ensure!(flat, "memory is not flat");
    anyhow::ensure!(account.is_good(), "requests failed");
    Ok(())
}

/// Returns the samples and the slope of the second half, and whether that is flat.
fn report(samples: &[Sample]) -> (String, bool) {
    let mut text =
        String::from("| minutes | RSS KiB | PSS KiB | open files |\n| ---: | ---: | ---: | ---: |\n");
    for sample in samples {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {:.1} | {} | {} | {} |",
            sample.at.as_secs_f64() / 60.0,
            sample.resident_kib,
            sample.proportional_kib,
            sample.open_files
        );
    }
    let later = &samples[samples.len() / 2..];
    let points: Vec<_> = later
        .iter()
        .map(|sample| (sample.at.as_secs_f64() / 3600.0, sample.proportional_kib as f64))
        .collect();
    let Some((slope, mean)) = line(&points) else {
        return (text + "\nToo few samples for a slope.", true);
    };
    let too_short = samples.last().is_none_or(|last| last.at < SHORTEST);
    let flat = too_short || slope < FLAT * mean;
    let verdict = match (too_short, flat) {
        (true, _) => "too short a run to decide whether it is flat",
        (_, true) => "flat",
        (_, false) => "NOT flat",
    };
    let _ = write!(
        text,
        "\nPSS in the second half: {mean:.0} KiB on average, {slope:+.0} KiB an hour ({:+.1} %): {verdict}.",
        100.0 * slope / mean
    );
    (text, flat)
}

/// Returns the slope of the line that fits best, and the mean.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let together: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    (points.len() >= 3 && spread > 0.0).then(|| (together / spread, y))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(kib: impl Fn(u64) -> u64) -> Vec<Sample> {
        let sample = |minute| Sample {
            at: Duration::from_secs(60 * minute),
            resident_kib: kib(minute),
            proportional_kib: kib(minute),
            open_files: 1,
        };
        (0..60).map(sample).collect()
    }

    #[test]
    fn memory_that_settles_is_flat_and_memory_that_grows_is_not() {
        assert!(
            report(&samples(|minute| 50_000
                + 1_000 * minute.min(20)
                + minute % 3 * 40))
            .1
        );
        let (text, flat) = report(&samples(|minute| 50_000 + 100 * minute));
        assert!(!flat && text.contains("+6000 KiB an hour"), "{text}");
    }

    #[test]
    fn a_few_samples_prove_nothing() {
        assert!(report(&samples(|minute| 100 * minute)[..2]).1);
    }
}
