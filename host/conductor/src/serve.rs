//! `conductor serve` and `check`: from parsed arguments to a router that runs until a signal.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use conductor_config::LogFormat as ConfiguredFormat;
use mooncake_compat::fleet_flags::{FlagDefaults, FleetArgs, configuration};
use mooncake_compat::import::{LegacyEnvironment, import_file};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::app::{App, RuntimeOptions};
use crate::check::for_people;
use crate::cli::{CheckArgs, CheckFormat, ServeArgs};
use crate::signals::{SignalRequest, Signals};
use crate::start::CONFIG_FILE;
use crate::{live_check, reload};
use conductor_tools::{Exit, UsageError, paint, print};
use local_files::{ConfigSource, ReadConfigError};
use logging::{LogFormat, LogLevel};
use policy_store::{EngineOptions, builtin, user_cache_folder};
use process_resources::{check_open_files, raise_open_files};

/// Longest time from a second signal to the end of the process.
const CUT: Duration = Duration::from_millis(500);

/// Runs the router until it has drained.
///
/// # Errors
/// If it cannot start.
pub async fn run(args: &ServeArgs) -> Result<Exit> {
    // Before anything that a signal may interrupt.
    let mut signals = Signals::listen().context("take over signals")?;
    let (source, warnings) = choose_source(args, &LegacyEnvironment::of_process())?;
    let text = match source.read() {
        Err(ReadConfigError::NotUtf8(mistakes)) => {
            eprint!("{}", mistakes.render(paint::of_stderr()));
            return Ok(Exit::Failure);
        }
        read => read.map_err(UsageError::new)?,
    };
    let config = match reload::read(&source, &text) {
        Ok(parsed) => parsed.config,
        Err(mistakes) => {
            eprint!("{}", for_people(&mistakes, &source, paint::of_stderr()));
            return Ok(Exit::Failure);
        }
    };
    if args.print_config {
        print::write(text)?;
        return Ok(Exit::Success);
    }
    let format = match config.log.format {
        ConfiguredFormat::Text => LogFormat::Text {
            is_coloured: paint::on_stderr(),
        },
        ConfiguredFormat::Json => LogFormat::Json,
    };
    let level = LogLevel::choose(args.level(), &config.log.level);
    let log = logging::init(level, format)?;
    info!(
        config = source.name(),
        version = env!("CARGO_PKG_VERSION"),
        "starting"
    );
    check_open_files(raise_open_files(), config.server.max_connections);
    for warning in warnings {
        warn!("{warning}");
    }
    let options = RuntimeOptions {
        log: Some(log),
        engine: EngineOptions {
            cache_folder: user_cache_folder(),
            compiles_in_child: true,
        },
        program: own_program(),
    };
    // The text is not read again: the parts of the start would be of two texts.
    let Some(built) = unless_stopped(Box::pin(App::build_with(source, text, options)), &mut signals).await
    else {
        info!("a signal ended the start: nothing was served");
        return Ok(Exit::Success);
    };
    Box::pin(until_signalled(built?, signals)).await
}

/// Runs a start. Returns `None` if a signal to stop comes first: policies may be compiled for minutes. Blocking work of
/// the start is left behind.
pub(crate) async fn unless_stopped<T>(start: impl Future<Output = T>, signals: &mut Signals) -> Option<T> {
    tokio::select! {
        started = start => Some(started),
        () = signals.stop() => None,
    }
}

/// Returns the file of this program. Linux's path of it stays valid after the file was replaced.
pub(crate) fn own_program() -> Option<PathBuf> {
    let own = Path::new("/proc/self/exe");
    if own.exists() {
        return Some(own.to_owned());
    }
    std::env::current_exe().ok()
}

/// Returns the configuration, and warnings about the environment variables of older conductors.
fn choose_source(args: &ServeArgs, legacy: &LegacyEnvironment) -> Result<(ConfigSource, Vec<String>)> {
    if let Some(file) = &args.config {
        return Ok((ConfigSource::File(file.clone()), legacy.ignored()));
    }
    if let (true, Some(path)) = (args.fleet.is_empty(), &legacy.config_path) {
        let mut imported = import_file(path, legacy).map_err(UsageError::new)?;
        let path = path.display();
        imported.warnings.insert(
            0,
            format!(
                "running the old configuration `{path}` that CONDUCTOR_CONFIG_PATH names, as `conductor import {path}` \
                 shows it: keep its output as a conductor.toml and give that with --config"
            ),
        );
        return Ok((ConfigSource::Text(imported.toml), imported.warnings));
    }
    Ok((source_of(&args.fleet)?, legacy.ignored()))
}

/// Runs a router until a signal has stopped it: the first drains, the second cuts.
///
/// # Errors
/// If the router's task failed.
pub(crate) async fn until_signalled(app: App, mut signals: Signals) -> Result<Exit> {
    let shutdown = CancellationToken::new();
    let (reload, readiness) = (app.reload_request(), app.readiness());
    let mut router = app.spawn(shutdown.clone());
    loop {
        tokio::select! {
            exit = &mut router => return exit.context("the router's task failed"),
            signal = signals.next() => match signal {
                SignalRequest::Reload => reload.notify_one(),
                SignalRequest::Stop if shutdown.is_cancelled() => {
                    info!("second signal: not waiting for running requests");
                    readiness.end_drain();
                    // Cut requests are logged, and the other routers get a goodbye.
                    let _ = tokio::time::timeout(CUT, &mut router).await;
                    return Ok(Exit::DrainCut);
                }
                SignalRequest::Stop => {
                    info!("draining; a second signal ends it at once");
                    shutdown.cancel();
                }
            },
        }
    }
}

/// Runs `conductor check`: prints every mistake of a configuration, and with `--live` the state of its workers.
///
/// # Errors
/// If the configuration cannot be read, or the flags are invalid.
pub fn check(args: &CheckArgs) -> Result<Exit> {
    let source = checked_source(args)?;
    let checked = crate::check::check(&source)?;
    let json = args.format == CheckFormat::Json;
    let report = format!(
        "{}{}: {}\n",
        checked.for_people(&source, paint::of_stdout()),
        source.name(),
        checked.summary()
    );
    if args.live {
        return live_check::run(&source, &checked, &report, json);
    }
    print::print(&checked.listed(&source), report, json)?;
    Ok(if checked.errors == 0 {
        Exit::Success
    } else {
        Exit::Failure
    })
}

fn checked_source(args: &CheckArgs) -> Result<ConfigSource> {
    if !args.fleet.is_empty() {
        return source_of(&args.fleet);
    }
    let file = args.file.as_deref().unwrap_or(Path::new(CONFIG_FILE));
    Ok(ConfigSource::File(file.to_owned()))
}

/// Returns the configuration that flags stand for.
pub(crate) fn source_of(flags: &FleetArgs) -> Result<ConfigSource> {
    let defaults = FlagDefaults {
        policy: builtin::DEFAULT,
        has_engine_key: std::env::var_os("OPENAI_API_KEY").is_some_and(|key| !key.is_empty()),
    };
    let text = configuration(flags, defaults).map_err(UsageError::new)?;
    Ok(ConfigSource::Text(text))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn a_signal_to_stop_ends_a_start() {
        let mut signals = Signals::listen().unwrap();
        assert_eq!(unless_stopped(ready(1), &mut signals).await, Some(1));
        kill_process(getpid(), Signal::HUP).unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        assert_eq!(unless_stopped(pending::<u8>(), &mut signals).await, None);
        assert_eq!(signals.next().await, SignalRequest::Reload);
    }
}
