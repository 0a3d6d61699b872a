//! Disaggregated pools under load while their engines fail at random, for as long as wanted; then an account of it.
//!
//!     cargo run --release -p e2e --example pd_soak -- --minutes 10
//!
//! Each dialect has a pool of two prefill and two decode engines behind one router. Clients send chat and completions
//! requests, streamed and not, and some of them leave. The exit status is 1 unless, in the end,
//!
//! - every request of a client that stayed ended within [`load::HUNG_AFTER`];
//! - every complete answer is the one that a single engine gives;
//! - every error is explained by faults that no router could compensate (see `account.rs`), and no stream ended
//!   without its end or an error event;
//! - the router holds no lease, and no engine computes, waits or keeps blocks.
//!
//! The seed decides the requests and the order of faults; when they meet is up to the clock.

mod account;
mod chaos;
mod load;
mod pool;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use harness::TestRouter;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::account::Account;
use crate::load::LoadClient;
use crate::pool::Pool;

/// An engine's own timeouts, with a margin.
const SETTLE_WITHIN: Duration = Duration::from_secs(40);
const REPORT_EVERY: Duration = Duration::from_secs(30);

/// Plays a disaggregated fleet under load with random faults, and accounts for every request.
#[derive(Debug, Parser)]
struct Options {
    /// Duration.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Of questions and faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients at a time, over all pools.
    #[arg(long, default_value_t = 48)]
    clients: usize,
    /// One pool each: nixl, mooncake, store, sglang.
    #[arg(long, value_delimiter = ',', default_value = "nixl,mooncake")]
    dialects: Vec<String>,
    /// Of every pool.
    #[arg(long, default_value = "round-robin")]
    policy: String,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let mut pools = Vec::new();
    for dialect in &options.dialects {
        pools.push(Arc::new(Pool::start(dialect).await?));
    }
    let router = TestRouter::start(&toml(&pools, &options.policy)).await?;
    let account = run(&options, &pools, &router).await?;
    let left = settled(&pools, &router).await?;

    println!("{account}");
    for pool in &pools {
        println!("{pool}");
    }
    let leases = router.leases("").await?;
    println!("leases left: {leases}\nengines not idle: {}", left.len());
    for engine in &left {
        println!("  {engine}");
    }
    let good = account.is_clean() && left.is_empty() && leases == 0.0;
    println!("{}", if good { "PASSED" } else { "FAILED" });
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn toml(pools: &[Arc<Pool>], policy: &str) -> String {
    // Enough attempts that they are never what ends a request: two pairs, each once more, and decode workers alone.
    let mut toml = String::from(
        "attempts = 8\nconnect-timeout = \"1s\"\nfirst-byte-timeout = \"5s\"\nidle-timeout = \"5s\"\n\
         [log]\nlevel = \"off\"\n",
    );
    let mut routes = String::new();
    for Pool { name, fleet, .. } in pools.iter().map(|pool| &**pool) {
        toml += &fleet.pool_toml(name, "");
        let _ = writeln!(
            routes,
            "[[routes]]\nmatch = {{ header = {{ x-pool = \"{name}\" }} }}\npool = \"{name}\"\npolicy = \"{policy}\""
        );
    }
    toml + &routes
}

/// Runs the load and the faults, up to the end of the last request.
async fn run(options: &Options, pools: &[Arc<Pool>], router: &TestRouter) -> Result<Arc<Account>> {
    let account = Arc::new(Account::default());
    let questions = Arc::new(load::questions(options.seed).await?);
    let (over, faults, clients) = (CancellationToken::new(), TaskTracker::new(), TaskTracker::new());
    for (at, pool) in pools.iter().enumerate() {
        for engine in 0..pool.engines() {
            let seed = options.seed ^ ((at as u64 + 1) << 32) ^ ((engine as u64 + 1) << 48);
            faults.spawn(
                over.clone()
                    .run_until_cancelled_owned(chaos::play(Arc::clone(pool), engine, seed)),
            );
        }
    }
    for number in 0..options.clients {
        let client = LoadClient {
            client: router.client.clone(),
            pool: Arc::clone(&pools[number % pools.len()]),
            questions: Arc::clone(&questions),
            account: Arc::clone(&account),
        };
        clients.spawn(client.send_until(over.clone(), options.seed + number as u64));
    }
    let started = Instant::now();
    let length = Duration::try_from_secs_f64(options.minutes * 60.0).context("--minutes")?;
    while started.elapsed() < length {
        tokio::time::sleep(REPORT_EVERY.min(length.saturating_sub(started.elapsed()))).await;
        eprintln!("after {:.0?}: {}", started.elapsed(), account.in_short());
    }
    over.cancel();
    for tasks in [&faults, &clients] {
        tasks.close();
        tasks.wait().await;
    }
    Ok(account)
}

/// Ends every fault and waits until nothing is left; what is, in the end.
async fn settled(pools: &[Arc<Pool>], router: &TestRouter) -> Result<Vec<String>> {
    for pool in pools {
        pool.heal().await?;
    }
    let started = Instant::now();
    loop {
        let left: Vec<_> = pools.iter().flat_map(|pool| pool.left()).collect();
        let done = left.is_empty() && router.leases("").await? == 0.0;
        if done || started.elapsed() > SETTLE_WITHIN {
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
