//! `conductor demo --compare`: one multi-turn workload against two policies, each on a fleet of its own.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use mock_engine::workload::{Driver, Summary, Workload};
use tokio_util::sync::CancellationToken;

use super::{config, fleet};
use crate::app::App;
use crate::cli::DemoArgs;
use crate::config_source::ConfigSource;
use crate::exit::Exit;

const POLICIES: [&str; 2] = ["round-robin", "cache-aware"];

pub(super) async fn run(args: &DemoArgs) -> Result<Exit> {
    println!(
        "| policy | requests | errors | cached share of prompt tokens | mean TTFT | p99 TTFT |\n|---|---|---|---|---|---|"
    );
    for policy in POLICIES {
        let summary = measure(args, policy)
            .await
            .with_context(|| format!("measure {policy}"))?;
        println!(
            "| {policy} | {} | {} | {:.3} | {:.1?} | {:.1?} |",
            summary.requests,
            summary.errors,
            summary.cached_share(),
            summary.mean_ttft(),
            summary.p99_ttft(),
        );
    }
    Ok(Exit::Success)
}

async fn measure(args: &DemoArgs, policy: &str) -> Result<Summary> {
    let engines = fleet(args.workers, args.seed).await?;
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let app = App::build(ConfigSource::Text(config(any, any, &engines, policy))).await?;
    let base_url = format!("http://{}", app.addr());
    let shutdown = CancellationToken::new();
    let router = app.spawn(shutdown.clone());
    let sessions = Workload {
        seed: args.seed,
        ..Workload::default()
    }
    .multi_turn();
    let summary = Driver {
        base_url,
        ..Driver::default()
    }
    .run(&sessions)
    .await?;
    shutdown.cancel();
    router.await?;
    for engine in engines {
        engine.stop().await;
    }
    Ok(summary)
}
