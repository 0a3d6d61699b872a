//! `conductor demo --compare`: one multi-turn workload against some policies, each on a fleet of its own.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mock_engine::workload::{Driver, Summary, Workload};
use tokio_util::sync::CancellationToken;

use super::fleet::{config, fleet};
use super::progress::Progress;
use crate::app::App;
use crate::cli::DemoArgs;
use conductor_tools::{Exit, paint};
use local_files::ConfigSource;
use logging::{LogFormat, LogLevel};
use policy_store::builtin;

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

pub(super) async fn run(args: &DemoArgs, level: LogLevel<'_>) -> Result<Exit> {
    let workload = workload(args.seed);
    let turns_of_all = (workload.sessions * workload.turns * POLICIES.len()) as u64;
    let progress = Progress::of(turns_of_all);
    logging::init_with(
        level,
        LogFormat::Text {
            is_coloured: paint::on_stderr(),
        },
        progress.log_writer(),
    )?;
    Box::pin(compare(args, &workload, progress, &mut io::stdout())).await
}

/// Measures all policies, then prints the table in one piece: whatever is logged meanwhile is outside of it.
async fn compare(
    args: &DemoArgs,
    workload: &Workload,
    mut progress: Progress,
    out: &mut impl Write,
) -> Result<Exit> {
    let Workload {
        sessions,
        turns,
        system_prompts,
        ..
    } = workload;
    let mut table = format!(
        "{sessions} conversations of {turns} turns with {system_prompts} system prompts on {} mock engines, seed {}.\n\
         Cached is the share of the prompt tokens that the engines' own usage reports as cached.\n\n\
         | policy | requests | errors | cached | mean TTFT | p99 TTFT |\n|---|---|---|---|---|---|\n",
        args.workers, args.seed,
    );
    let mut failed = None;
    for policy in POLICIES {
        progress.begin(policy);
        let summary = Box::pin(measure(args, workload, policy, &progress))
            .await
            .with_context(|| format!("measure {policy}"))?;
        progress.end((sessions * turns) as u64);
        table += &row(policy, &summary);
        if let Some(error) = summary.first_error {
            failed = Some(format!("requests failed under {policy}, the first with: {error}"));
            break;
        }
    }
    drop(progress);
    out.write_all(table.as_bytes())?;
    match failed {
        Some(failed) => bail!(failed),
        None => Ok(Exit::Success),
    }
}

fn row(policy: &str, summary: &Summary) -> String {
    let milliseconds = |time: Option<Duration>| {
        time.map_or_else(
            || "none".to_owned(),
            |time| format!("{:.0} ms", time.as_secs_f64() * 1e3),
        )
    };
    format!(
        "| {policy} | {} | {} | {:.1} % | {} | {} |\n",
        summary.requests,
        summary.errors,
        summary.cached_share() * 100.0,
        milliseconds(summary.mean_ttft()),
        milliseconds(summary.p99_ttft()),
    )
}

async fn measure(args: &DemoArgs, workload: &Workload, policy: &str, progress: &Progress) -> Result<Summary> {
    let engines = fleet(args.workers, args.seed).await?;
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let app = App::build(ConfigSource::Text(config(any, any, &engines, policy))).await?;
    let base_url = format!("http://{}", app.addr());
    let shutdown = CancellationToken::new();
    let router = app.spawn(shutdown.clone());
    let sessions = workload.multi_turn();
    let driver = Driver {
        base_url,
        ..Driver::default()
    };
    let summary = tokio::select! {
        summary = driver.run(&sessions) => summary?,
        never = progress.follow(&engines) => match never {},
    };
    shutdown.cancel();
    router.await?;
    for engine in engines {
        engine.stop().await;
    }
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written text, call by call.
    #[derive(Default)]
    struct Calls(Vec<String>);

    impl Write for Calls {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_table_is_printed_in_one_piece_after_all_policies_were_measured() {
        let workload = Workload {
            sessions: 2,
            turns: 1,
            ..workload(1)
        };
        let args = DemoArgs {
            workers: 1,
            compare: true,
            ..DemoArgs::default()
        };
        let mut written = Calls::default();
        let exit = Box::pin(compare(&args, &workload, Progress::of(6), &mut written)).await;
        assert_eq!(exit.unwrap(), Exit::Success);
        let [table] = &written.0[..] else {
            panic!("{:?}", written.0)
        };
        let rows = table.lines().filter(|line| line.starts_with("| "));
        assert_eq!(rows.count(), 1 + POLICIES.len(), "{table}");
    }
}
