//! Swap run: a policy is replaced many times under load. Every version has new bytes, which are compiled, tried and
//! activated.
//!
//!     cargo run --release -p e2e --example swap_soak -- --swaps 10000
//!
//! Prints the process's memory regularly. The exit status is 1 unless every request was answered with 200.

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use harness::{Fleet, Steady, Taken, TestRouter, route_all, sends_to};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Swaps after which memory should have settled: the pools of instances are filled, the kept versions are there.
const WARM: usize = 100;

/// Swaps a policy again and again.
#[derive(Debug, Parser)]
struct Options {
    /// Number of swaps.
    #[arg(long, default_value_t = 1_000)]
    swaps: usize,
    /// Requests a second.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// Seconds of the same load before the first swap, to see what it takes by itself.
    #[arg(long, default_value_t = 0)]
    before: u64,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let fleet = Fleet::start(3, |number, config| {
        config.seed = number as u64;
        config.time_scale = 100.0;
    })
    .await?;
    let workers = format!("[log]\nlevel = \"off\"\n\n{}", fleet.workers_toml());
    let router = TestRouter::start(&format!("{workers}{}", route_all("round-robin"))).await?;
    router.save_policy("mine", &sends_to(0, 0)?)?;
    router
        .admin_shows("/admin/policies", "the policy is loaded", |page| {
            page.to_string().contains("\"mine\"")
        })
        .await;
    router.save_config(&format!("{workers}{}", route_all("mine")))?;
    router
        .admin_shows("/admin/config", "it decides", |page| page["generation"] == 2)
        .await;

    let is_over = Arc::<AtomicBool>::default();
    let mut running = JoinSet::new();
    running.spawn(load(&router, options.rate, Arc::clone(&is_over)));
    println!("memory at the start: {} KiB", resident_kib()?);
    for second in 1..=options.before {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if second.is_multiple_of(10) {
            println!("after {second} s without a swap: {} KiB", resident_kib()?);
        }
    }
    let started = Instant::now();
    let mut settled = 0;
    for number in 1..=options.swaps {
        swap(&router, number).await?;
        if number == WARM.min(options.swaps) {
            settled = resident_kib()?;
        }
        if number % (options.swaps / 10).max(1) == 0 {
            println!(
                "after {number} swaps, {:.0?}: {} KiB",
                started.elapsed(),
                resident_kib()?
            );
        }
    }
    let took = started.elapsed() / u32::try_from(options.swaps.max(1))?;
    is_over.store(true, Ordering::Relaxed);
    let taken = running.join_next().await.context("the load was started")??;
    let end = resident_kib()?;
    println!(
        "{} swaps, {took:.1?} each; memory after the first {WARM}: {settled} KiB, at the end: {end} KiB",
        options.swaps
    );
    println!("requests: {taken}");
    Ok(if taken.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Sends requests until it is over.
fn load(
    router: &TestRouter,
    rate: u32,
    is_over: Arc<AtomicBool>,
) -> impl Future<Output = Taken> + Send + use<> {
    let messages = json!([{ "role": "user", "content": "Where does this go?" }]);
    let steady = Steady {
        client: router.client.clone(),
        body: json!({ "model": "mock", "max_tokens": 4, "messages": messages }),
        headers: vec![],
        rate,
    };
    async move {
        let mut all = Taken::default();
        while !is_over.load(Ordering::Relaxed) {
            let taken = steady.run(Duration::from_secs(1)).await;
            all.failed += taken.failed;
            all.times.extend(taken.times);
        }
        all.times.sort_unstable();
        all
    }
}

/// Activates new bytes; they are active when this returns.
async fn swap(router: &TestRouter, number: usize) -> Result<()> {
    router.save_policy("mine", &sends_to(number % 3, number)?)?;
    loop {
        router.admin.post("/admin/reload", &Value::Null).await?;
        let page = router.admin("/admin/policies").await?;
        let policies = page["policies"].as_array().into_iter().flatten();
        let mut mine = policies.filter(|policy| policy["name"] == "mine");
        if mine.next().context("the policy is there")?["swaps"] == number + 1 {
            return Ok(());
        }
    }
}

/// Returns the memory of this process that is not swapped out.
fn resident_kib() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("read the process's status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
