//! `conductor demo --validate`: the simulator against the demo fleet. Each load is recorded, simulated from its log,
//! and the times to first token are compared.

use std::convert::Infallible;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use mock_engine::workload::{Driver, Workload};
use mock_engine::{CostModel, MockConfig, MockEngine};
use tokio_util::sync::CancellationToken;

use super::fleet::{fleet_of, recording_config};
use crate::app::App;
use crate::cli::{Cli, Command, DemoArgs};
use conductor_tools::simulate::{LogAccuracy, MeasuredFigure};
use conductor_tools::{Exit, paint};
use local_files::ConfigSource;
use logging::{LogFormat, LogLevel};

/// Loads, as shares of the fleet's capacity.
const LOADS: [f64; 2] = [0.6, 0.9];
/// Largest error of a figure.
const LARGEST_ERROR: f64 = 0.1;
/// Time of the engines over which conversations begin.
const RAMP: Duration = Duration::from_secs(36);
/// Time of the engines from the last conversation's begin to its end.
const LAST_CONVERSATION: Duration = Duration::from_secs(8);
/// Interval of the lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(30);
/// Grace beyond twice the expected time, after which a recording is given up.
const GRACE: Duration = Duration::from_secs(60);
/// Tokens of an engine's cache. Running requests and the cache share it, which the simulator does not model.
const CACHE_TOKENS: u32 = 1 << 20;

/// Returns the command that simulates a log, as arguments of this program.
fn command(log: &Path) -> Vec<String> {
    let cache = CACHE_TOKENS.to_string();
    // A step of a mock engine has one whole prompt, and a token of each answer.
    let arguments = [
        "--cache-tokens",
        &cache,
        "--chunk-tokens",
        &cache,
        "--step-prompts",
        "1",
    ];
    ["conductor", "simulate", "--log"]
        .into_iter()
        .map(str::to_owned)
        .chain([log.display().to_string()])
        .chain(arguments.map(str::to_owned))
        .collect()
}

/// Conversations at a share of the capacity of so many engines.
///
/// An engine is at its capacity if each step computes a prompt: then as many answers are written as an answer has
/// tokens.
fn workload(seed: u64, workers: u16, load: f64, cost: &CostModel) -> Workload {
    let (turns, system_tokens, user_tokens, answer_tokens) = (4, 2_000, 600, 32_u32);
    let turn_tokens = user_tokens + answer_tokens as usize;
    // The turn in the middle: its earlier messages are cached.
    let begin = system_tokens + turn_tokens * (turns - 1) / 2;
    let prompt_ms = cost.prefill_ms(begin, begin + user_tokens, true);
    let request_ms = prompt_ms + cost.decode_ms(answer_tokens as usize);
    let requests = load * f64::from(workers) * RAMP.as_secs_f64() * 1e3 / request_ms;
    Workload {
        seed,
        sessions: (requests / turns as f64).ceil() as usize,
        turns,
        system_prompts: 8,
        system_tokens,
        user_tokens,
        answer_tokens,
        think_time: Duration::from_secs(1),
        ramp: RAMP,
        ..Workload::default()
    }
}

/// Returns the time that a recording takes.
fn expected_time(time_scale: f64) -> Duration {
    let seconds = (RAMP + LAST_CONVERSATION).as_secs_f64() / time_scale;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Returns the time after which a recording is given up.
fn longest_time(time_scale: f64) -> Duration {
    expected_time(time_scale).saturating_mul(2).saturating_add(GRACE)
}

pub(super) async fn run(args: &DemoArgs, folder: &Path, level: LogLevel<'_>) -> Result<Exit> {
    logging::init(
        level,
        LogFormat::Text {
            is_coloured: paint::on_stderr(),
        },
    )?;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("make the folder `{}` for the logs", folder.display()))?;
    Box::pin(validate(args, folder, &LOADS, &mut io::stdout())).await
}

/// Records and simulates the loads one after the other, and prints a row for each as soon as it is there.
async fn validate(args: &DemoArgs, folder: &Path, loads: &[f64], out: &mut impl Write) -> Result<Exit> {
    writeln!(
        out,
        "{} mock engines at {} times their speed, seed {}. Times to first token are measured / simulated, in ms.\n\n\
         | load | requests | mean | error | p99 | error | cached |\n|---|---|---|---|---|---|---|",
        args.workers, args.time_scale, args.seed,
    )?;
    let mut largest = 0.0_f64;
    for &load in loads {
        let log = folder.join(format!("{}-workers-{:.0}.jsonl", args.workers, 100.0 * load));
        if log.exists() {
            bail!("failed to record `{}`: the file exists already", log.display());
        }
        Box::pin(record(args, load, &log))
            .await
            .with_context(|| format!("record the load {load}"))?;
        let found = simulate(&log).with_context(|| format!("simulate `{}`", log.display()))?;
        writeln!(out, "{}", row(load, &found))?;
        out.flush()?;
        for figure in [&found.mean_ms, &found.p99_ms] {
            largest = largest.max(figure.error().abs());
        }
    }
    let last = folder.join("LOG");
    writeln!(out, "\nSimulated by: {}", command(&last).join(" "))?;
    Ok(match largest <= LARGEST_ERROR {
        true => Exit::Success,
        false => Exit::Failure,
    })
}

fn simulate(log: &Path) -> Result<LogAccuracy> {
    match Cli::try_parse_from(command(log))?.command {
        Some(Command::Simulate(args)) => LogAccuracy::of(&args),
        _ => bail!("failed to simulate: the command has other arguments"),
    }
}

fn row(load: f64, found: &LogAccuracy) -> String {
    let times = |figure: &MeasuredFigure| {
        format!(
            "{:.0} / {:.0} | {:+.1} %",
            figure.measured,
            figure.simulated,
            100.0 * figure.error()
        )
    };
    format!(
        "| {:.0} % | {} | {} | {} | {:.1} / {:.1} % |",
        100.0 * load,
        found.requests,
        times(&found.mean_ms),
        times(&found.p99_ms),
        100.0 * found.cached.measured,
        100.0 * found.cached.simulated,
    )
}

async fn record(args: &DemoArgs, load: f64, log: &Path) -> Result<()> {
    let engine = MockConfig {
        cache_blocks: CACHE_TOKENS / MockConfig::default().block_size,
        time_scale: args.time_scale,
        ..MockConfig::default()
    };
    let sessions = workload(args.seed, args.workers, load, &engine.cost).multi_turn();
    let engines = fleet_of(args.workers, args.seed, &engine).await?;
    let log = std::path::absolute(log).context("find the folder of the log")?;
    let app = App::build(ConfigSource::Text(recording_config(&engines, &log))).await?;
    let driver = Driver {
        base_url: format!("http://{}", app.addr()),
        concurrency: sessions.len(),
        time_scale: args.time_scale,
        ..Driver::default()
    };
    let shutdown = CancellationToken::new();
    let router = app.spawn(shutdown.clone());
    let requests = sessions.iter().map(|session| session.turns.len()).sum();
    let longest = longest_time(args.time_scale);
    let progress = RecordingProgress {
        load,
        requests,
        expected: expected_time(args.time_scale),
    };
    let summary = tokio::select! {
        summary = tokio::time::timeout(longest, driver.run(&sessions)) => {
            summary.with_context(|| format!("play {requests} requests within {} s", longest.as_secs()))??
        }
        never = progress.follow(&engines) => match never? {},
    };
    shutdown.cancel();
    router.await?;
    for engine in engines {
        engine.stop().await;
    }
    match summary.first_error {
        Some(error) => bail!("{} requests failed, the first with: {error}", summary.errors),
        None => Ok(()),
    }
}

/// Progress of a recording, written to standard error beside the table.
#[derive(Debug)]
struct RecordingProgress {
    load: f64,
    requests: usize,
    expected: Duration,
}

impl RecordingProgress {
    /// Writes a line at once and then at an interval, until it is dropped.
    async fn follow(&self, engines: &[MockEngine]) -> io::Result<Infallible> {
        let begun = tokio::time::Instant::now();
        loop {
            let completed = engines.iter().map(|engine| engine.stats().completed).sum();
            writeln!(io::stderr(), "{}", self.line(completed, begun.elapsed()))?;
            tokio::time::sleep(PROGRESS_EVERY).await;
        }
    }

    fn line(&self, completed: u64, elapsed: Duration) -> String {
        format!(
            "Recording {:.0} %: {completed} of {} requests, {} of about {} s",
            100.0 * self.load,
            self.requests,
            elapsed.as_secs(),
            self.expected.as_secs(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_the_share_of_an_engines_capacity() {
        let cost = CostModel {
            prefill_fixed_ms: 30.0,
            prefill_token_ms: 0.1,
            prefill_quadratic_ms: 0.0,
            decode_step_ms: 8.0,
            decode_sequence_ms: 0.0625,
        };
        // 90 ms for the prompt and 10 for a step: ten requests a second and engine, in 36 s.
        for (workers, load, requests) in [(1, 1.0, 360), (4, 0.5, 720)] {
            let workload = workload(1, workers, load, &cost);
            assert_eq!(workload.sessions * workload.turns, requests);
        }
    }

    #[test]
    fn a_recording_has_an_expected_time_and_a_longest_one() {
        assert_eq!(expected_time(0.2), Duration::from_secs(220));
        assert_eq!(longest_time(0.2), Duration::from_secs(500));
        assert_eq!(longest_time(1e-300), Duration::MAX);
    }

    #[test]
    fn a_line_of_progress_has_the_requests_and_the_expected_time() {
        let progress = RecordingProgress {
            load: 0.9,
            requests: 2_072,
            expected: expected_time(0.2),
        };
        assert_eq!(
            progress.line(300, Duration::from_millis(30_400)),
            "Recording 90 %: 300 of 2072 requests, 30 of about 220 s"
        );
    }

    #[test]
    fn a_log_is_simulated_by_the_command_that_is_printed() {
        let command = command(Path::new("demo/4-workers-60.jsonl"));
        let Some(Command::Simulate(args)) = Cli::try_parse_from(command).unwrap().command else {
            panic!("another command");
        };
        assert_eq!(args.log, [Path::new("demo/4-workers-60.jsonl")]);
        assert_eq!(args.cluster.step_prompts, Some(1));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_load_is_recorded_and_simulated_and_its_figures_printed() {
        let folder = tempfile::tempdir().unwrap();
        let args = DemoArgs {
            workers: 1,
            time_scale: 40.0,
            ..DemoArgs::default()
        };
        let mut written = Vec::new();
        // The exit code depends on the speed of the machine.
        Box::pin(validate(&args, folder.path(), &[0.1], &mut written))
            .await
            .unwrap();
        let table = String::from_utf8(written).unwrap();
        assert!(table.contains("| 10 % | 60 | "), "{table}");
        let again = Box::pin(validate(&args, folder.path(), &[0.1], &mut Vec::new())).await;
        assert!(again.unwrap_err().to_string().contains("exists already"));
    }
}
