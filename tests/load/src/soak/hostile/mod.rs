//! Every attack that is known at once, scaled down, beside ordinary requests. First the router is measured without
//! them, then with them. Its memory must stay below its limit, ordinary requests must not fail or become slow, and
//! `/health` must always be answered.

mod attackers;
mod bodies;
mod feeds;
mod field;
mod listeners;
mod policies;
mod setup;
mod verdict;
mod watch;
mod worker;
mod zmtp;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use tokio::task::JoinSet;

use self::attackers::Attackers;
use self::feeds::Feeds;
use self::field::Field;
use self::setup::{ORDINARY_KEY, Router};
use self::verdict::Verdict;
use self::watch::Watch;
use self::worker::HostileWorkers;
use super::account::Account;
use super::block_on;
use super::client::Clients;
use super::fleet::Fleet;
use super::trouble::Record;
use crate::interrupt::Interrupt;
use crate::open_files;

/// Attacks that begin together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Attack {
    /// Publishers of KV events.
    Feeds,
    /// Bodies that are held, and that dribble.
    Bodies,
    /// Prompts that cost a tokenizer much.
    Prompts,
    /// Requests hidden in others, and workers that lie.
    Lies,
    /// The listeners of operators and of the index.
    Listeners,
    /// Files in the folder of policies.
    Policies,
}

/// Options of the run.
#[derive(Debug, Clone, Args)]
pub struct HostileOptions {
    /// Duration of the attack.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Duration of the quiet run before. Default: a quarter of the attack's.
    #[arg(long)]
    quiet_minutes: Option<f64>,
    /// Of everything that is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Mock engines for the ordinary requests.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=64))]
    workers: u16,
    /// Ordinary requests a second.
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    /// The router's `memory-limit`, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 768, value_parser = clap::value_parser!(u64).range(128..))]
    memory_limit: u64,
    /// Maximum ratio of the attacked run's p99 to the quiet run's.
    #[arg(long, default_value_t = 2.0)]
    slower: f64,
    /// Attacks to leave out.
    #[arg(long, value_enum, value_delimiter = ',')]
    without: Vec<Attack>,
    /// Conductor's binary, built with `cargo build --release -p conductor`.
    #[arg(long, value_name = "PATH", default_value = "target/release/conductor")]
    conductor: PathBuf,
    /// The core of the router; everything else is on the other ones.
    #[arg(long, default_value_t = 1)]
    router_core: usize,
}

/// Runs it and prints what came of it.
///
/// # Errors
/// Where it cannot run or was interrupted, the router ended, or an aim was missed.
pub fn run(options: &HostileOptions, interrupt: &Interrupt) -> Result<()> {
    open_files::raise();
    block_on(play(options, interrupt))
}

async fn play(options: &HostileOptions, interrupt: &Interrupt) -> Result<()> {
    let length = |minutes: f64| Duration::try_from_secs_f64(minutes * 60.0).context("--minutes");
    let attacked = length(options.minutes)?;
    let quiet = length(options.quiet_minutes.unwrap_or(options.minutes / 4.0))?;
    let fleet = Fleet::start(options.workers, options.seed).await?;
    let feeds = Feeds::bind().await?;
    let hostile = HostileWorkers::start(feeds.count()).await?;
    let mut router = Router::start(options, &fleet, &hostile, &feeds).await?;
    let field = Arc::new(Field::new(&router));
    let mut watch = Watch::start(&router);

    eprintln!("{quiet:.0?} without attacks");
    let before = ordinary(options, &mut router, quiet, interrupt).await?;
    eprintln!("{attacked:.0?} under attack");
    let attackers = Attackers::start()?;
    let mut attacks = spawn(options, &attackers, (feeds, &router), &field)?;
    let during = ordinary(options, &mut router, attacked, interrupt).await?;
    attacks.shutdown().await;

    let verdict = Verdict {
        peak: router.peak()?,
        limit: options.memory_limit << 20,
        quiet_ms: before.millis(0.99),
        attacked_ms: during.millis(0.99),
        slower: options.slower,
        failed: before.failures() + during.failures(),
        answered: before.completed().min(during.completed()),
        health: watch.end().await,
        smuggled: field.smuggled(),
    };
    println!("Without attacks: {}", before.to_markdown());
    println!("Under attack: {}", during.to_markdown());
    println!("{}\n{}", field.to_markdown(), router.metrics().await?);
    println!("{verdict}");
    println!("The end of the router's log:\n{}", router.log_tail());
    let misses = verdict.misses();
    anyhow::ensure!(misses.is_empty(), "missed: {}", misses.join("; "));
    Ok(())
}

/// Begins every attack that is not left out.
fn spawn(
    options: &HostileOptions,
    attackers: &Attackers,
    (feeds, router): (Feeds, &Router),
    field: &Arc<Field>,
) -> Result<JoinSet<()>> {
    let _on_their_threads = attackers.enter();
    let mut attacks = JoinSet::new();
    let mut feeds = Some(feeds);
    for attack in Attack::value_variants() {
        if options.without.contains(attack) {
            continue;
        }
        match attack {
            Attack::Feeds => feeds
                .take()
                .into_iter()
                .for_each(|feeds| feeds.spawn(&mut attacks, field)),
            Attack::Bodies => bodies::spawn(&mut attacks, field),
            Attack::Prompts => bodies::spawn_prompts(&mut attacks, field),
            Attack::Lies => bodies::spawn_lies(&mut attacks, field),
            Attack::Listeners => listeners::spawn(&mut attacks, field),
            Attack::Policies => policies::spawn(&mut attacks, field, router.folder(), options.seed)?,
        }
    }
    Ok(attacks)
}

/// Sends ordinary requests for so long.
async fn ordinary(
    options: &HostileOptions,
    router: &mut Router,
    length: Duration,
    interrupt: &Interrupt,
) -> Result<Arc<Account>> {
    let account = Arc::new(Account::new(Arc::<Record>::default()));
    let over = Arc::<AtomicBool>::default();
    let mut clients = Clients::new(
        router.target,
        true,
        options.rate,
        options.seed,
        Arc::clone(&account),
    );
    clients.key = Some(ORDINARY_KEY);
    let mut sending = JoinSet::new();
    let is_over = Arc::clone(&over);
    sending.spawn(Arc::new(clients).run(options.seed, move || is_over.load(Ordering::Relaxed)));
    let started = Instant::now();
    while started.elapsed() < length {
        tokio::time::sleep(Duration::from_millis(200)).await;
        anyhow::ensure!(!interrupt.is_set(), "interrupted");
        router.ensure_alive()?;
    }
    over.store(true, Ordering::Relaxed);
    while sending.join_next().await.is_some() {}
    router.ensure_alive()?;
    Ok(account)
}
