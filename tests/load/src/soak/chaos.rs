//! Chaos run with random faults. Engines are killed, hang, are slow, answer with errors and cut connections. The
//! router's file is edited, validly and invalidly, and its policy replaced. The run reports the clients' and the
//! router's view.

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
use super::trouble::{self, Record};
use super::{Options, block_on};
use crate::interrupt::Interrupt;

const REPORT_EVERY: Duration = Duration::from_secs(60);
/// Metrics that explain what clients saw: counters whose names have one of these words.
const NOTABLE: [&str; 12] = [
    "request", "attempt", "retr", "fail", "error", "cooldown", "health", "eject", "reload", "fault",
    "circuit", "shed",
];

/// Runs it, prints the account and the router's metrics.
///
/// # Errors
/// Where it cannot run or was interrupted, the router ended, or requests hung or failed while every engine was well.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    block_on(play(options, interrupt))
}

async fn play(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let fleet = Arc::new(Fleet::start(options.workers, options.seed).await?);
    let router = Arc::new(tokio::sync::Mutex::new(Router::start(options, &fleet).await?));
    let record = Arc::<Record>::default();
    let account = Arc::new(Account::new(Arc::clone(&record)));
    let over = Arc::<AtomicBool>::default();
    let target = router.lock().await.target;
    let clients = Arc::new(Clients::new(
        target,
        true,
        options.rate,
        options.seed,
        Arc::clone(&account),
    ));
    let mut sending = JoinSet::new();
    let is_over = Arc::clone(&over);
    sending.spawn(clients.run(options.seed, move || is_over.load(Ordering::Relaxed)));

    let mut troubles = JoinSet::new();
    for number in 0..fleet.engines.len() {
        let (fleet, record) = (Arc::clone(&fleet), Arc::clone(&record));
        let seed = options.seed ^ ((number as u64 + 1) << 32);
        troubles.spawn(async move { trouble::play(&fleet.engines[number], number, &record, seed).await });
    }
    let changes = Arc::<Changes>::default();
    troubles.spawn(meddle(
        Arc::clone(&router),
        Arc::clone(&fleet),
        options.seed ^ 7,
        Arc::clone(&changes),
    ));

    let started = Instant::now();
    let length = Duration::try_from_secs_f64(options.minutes * 60.0).context("--minutes")?;
    let mut reported_at = started;
    while started.elapsed() < length {
        tokio::time::sleep(Duration::from_millis(200)).await;
        anyhow::ensure!(!interrupt.is_set(), "interrupted");
        router.lock().await.ensure_alive()?;
        if reported_at.elapsed() >= REPORT_EVERY {
            reported_at = Instant::now();
            eprintln!("after {:.0?}: {}", started.elapsed(), account.in_short());
        }
    }
    troubles.shutdown().await;
    trouble::heal(&fleet.engines).await;
    over.store(true, Ordering::Relaxed);
    while sending.join_next().await.is_some() {}
    let mut router = router.lock().await;
    router.ensure_alive()?;
    println!("{}", account.to_markdown());
    println!("{}\n{changes}", spells(&record));
    println!("{}", explanation(&router).await?);
    println!("The end of the router's log:\n{}", router.log_tail());
    anyhow::ensure!(
        account.is_good(),
        "requests hung, or failed while every engine was well"
    );
    Ok(())
}

fn spells(record: &Record) -> String {
    let counts = record.counts();
    let counts: Vec<_> = counts
        .iter()
        .map(|(trouble, count)| format!("{trouble} {count}"))
        .collect();
    format!("Engines: {}.", counts.join(", "))
}

#[derive(Default)]
struct Changes {
    edits: std::sync::atomic::AtomicU64,
    swaps: std::sync::atomic::AtomicU64,
}

impl std::fmt::Display for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [edits, swaps] = [&self.edits, &self.swaps].map(|count| count.load(Ordering::Relaxed));
        writeln!(
            f,
            "The router's file was edited {edits} times (one in eight badly), a policy swapped {swaps} times."
        )
    }
}

/// Edits and swaps until it is dropped.
async fn meddle(
    router: Arc<tokio::sync::Mutex<Router>>,
    fleet: Arc<Fleet>,
    seed: u64,
    changes: Arc<Changes>,
) {
    let mut random = Random::new(seed);
    loop {
        tokio::time::sleep(random.ms(1_000, 6_000)).await;
        let router = router.lock().await;
        let (count, done) = match random.below(8) {
            0 => (&changes.edits, router.spoil()),
            1..=4 => (&changes.edits, router.edit(&fleet, &fleet.other(&mut random, 1))),
            _ => (&changes.swaps, router.swap(random.below(100))),
        };
        // The disk may be full: the active configuration stays.
        if done.is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Counters of the router that are not zero and may explain what clients saw.
async fn explanation(router: &Router) -> Result<String> {
    let metrics = router.metrics().await?;
    let notable = metrics.iter().filter(|(name, value)| {
        let name = name.split('{').next().unwrap_or_default();
        **value != 0.0 && name.ends_with("_total") && NOTABLE.iter().any(|word| name.contains(word))
    });
    let mut text = String::from("Counters of the router:\n");
    for (name, value) in notable {
        text += &format!("  {value} {name}\n");
    }
    Ok(text)
}
