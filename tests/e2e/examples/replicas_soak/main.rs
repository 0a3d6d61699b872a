//! Three routers of a fleet under load while routers and their NATS server fail, for as long as wanted; then a table.
//!
//!     cargo build -p conductor
//!     cargo run -p e2e --example replicas_soak -- --program target/debug/conductor --minutes 30
//!
//! The routers are processes over mock engines, and a relay between them and a real `nats-server` can delay messages.
//! After each fault the load pauses, and streams are held open at each router. The exit status is 1 unless
//!
//! - every request was answered that no killed router was answering;
//! - each router's loads were those of all routers within a second after each fault, and none was left;
//! - each rollback was decided once, and obeyed by all routers.

mod fault;
mod load;
mod relay;
mod routers;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use harness::Fleet;
use nats_server::NatsSite;
use tokio_util::task::TaskTracker;

use crate::fault::Fault;
use crate::load::Load;
use crate::relay::Relay;
use crate::routers::Routers;
use crate::table::Table;

/// Time of load before each fault.
const CALM: Duration = Duration::from_secs(8);

/// Fails routers and NATS under load, and accounts for every request.
#[derive(Debug, Parser)]
struct Options {
    /// Duration.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Requests a second.
    #[arg(long, default_value_t = 60.0)]
    rate: f64,
    /// The router's program.
    #[arg(long)]
    program: PathBuf,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let site = NatsSite::new()?;
    let mut nats = site.start();
    ensure!(nats.is_some(), "nats-server is not installed");
    let engines = Fleet::start(4, |number, config| {
        config.seed = number as u64;
        config.time_scale = 0.5;
    })
    .await?;
    let relay = Relay::start(site.address()).await?;
    let mut routers = Routers::start(&options.program, relay.port(), &engines).await?;
    let load = Arc::new(Load::new(routers.addresses()));
    let sending = TaskTracker::new().spawn(Arc::clone(&load).run(options.rate));

    let end = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    let mut table = Table::default();
    let mut round = 0;
    while Instant::now() < end {
        let fault = Fault::ALL[round % Fault::ALL.len()];
        tokio::time::sleep(CALM).await;
        let row = fault::play(fault, round, &mut routers, &site, &mut nats, &relay, &load)
            .await
            .with_context(|| format!("round {round}: {fault:?}"))?;
        println!("{}", row.line());
        table.add(row);
        round += 1;
    }
    load.stop();
    sending.await?;
    println!("{}", table.report(&load.counts()));
    Ok(if table.holds(&load.counts()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
