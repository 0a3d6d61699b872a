//! `conductor demo --compare`: one multi-turn workload against some policies, each on a fleet of its own.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mock_engine::workload::{Driver, Summary, Workload};
use tokio_util::sync::CancellationToken;

use super::{config, fleet};
use crate::app::App;
use crate::builtin;
use crate::cli::DemoArgs;
use crate::config_source::ConfigSource;
use crate::exit::Exit;

const POLICIES: [&str; 3] = ["round-robin", "cache-aware", builtin::DEFAULT];

/// Conversations that together need more than one engine's cache, so that where a turn goes decides what it finds.
fn workload(seed: u64) -> Workload {
    Workload {
        seed,
        sessions: 96,
        turns: 5,
        system_prompts: 8,
        ..Workload::default()
    }
}

pub(super) async fn run(args: &DemoArgs) -> Result<Exit> {
    let Workload {
        sessions,
        turns,
        system_prompts,
        ..
    } = workload(args.seed);
    println!(
        "{sessions} conversations of {turns} turns with {system_prompts} system prompts on {} mock engines, seed {}.\n\
         Cached is the share of the prompt tokens that the engines' own usage reports as cached.\n\n\
         | policy | requests | errors | cached | mean TTFT | p99 TTFT |\n|---|---|---|---|---|---|",
        args.workers, args.seed,
    );
    for policy in POLICIES {
        let summary = measure(args, policy)
            .await
            .with_context(|| format!("measure {policy}"))?;
        println!("{}", row(policy, &summary));
        if let Some(error) = &summary.first_error {
            bail!("requests failed under {policy}, the first with: {error}");
        }
    }
    Ok(Exit::Success)
}

fn row(policy: &str, summary: &Summary) -> String {
    let milliseconds = |time: Option<Duration>| {
        time.map_or_else(
            || "none".to_owned(),
            |time| format!("{:.0} ms", time.as_secs_f64() * 1e3),
        )
    };
    format!(
        "| {policy} | {} | {} | {:.1} % | {} | {} |",
        summary.requests,
        summary.errors,
        summary.cached_share() * 100.0,
        milliseconds(summary.mean_ttft()),
        milliseconds(summary.p99_ttft()),
    )
}

async fn measure(args: &DemoArgs, policy: &str) -> Result<Summary> {
    let engines = fleet(args.workers, args.seed).await?;
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let app = App::build(ConfigSource::Text(config(any, any, &engines, policy))).await?;
    let base_url = format!("http://{}", app.addr());
    let shutdown = CancellationToken::new();
    let router = app.spawn(shutdown.clone());
    let sessions = workload(args.seed).multi_turn();
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
