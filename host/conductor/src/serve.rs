//! `conductor serve`: from what the user typed to a router that runs until a signal.

use std::path::Path;

use anyhow::{Context, Result};
use conductor_config::{LogFormat as ConfiguredFormat, Paint};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::app::{App, Surroundings};
use crate::cli::ServeArgs;
use crate::config_source::ConfigSource;
use crate::exit::Exit;
use crate::import::{OldEnvironment, import_file};
use crate::quick_flags::from_flags;
use crate::signals::{Asked, Signals};
use crate::telemetry::{self, LogFormat};
use crate::{compiled, open_files, print, reload};

/// Runs the router until it has drained.
///
/// # Errors
/// Where it cannot start.
pub async fn run(args: &ServeArgs) -> Result<Exit> {
    // Before anything that a signal may interrupt.
    let signals = Signals::listen().context("take over signals")?;
    let (source, old) = choose_source(args, &OldEnvironment::of_process())?;
    let text = source.read()?;
    let config = match reload::read(&source, &text) {
        Ok(parsed) => parsed.config,
        Err(mistakes) => {
            eprint!("{}", mistakes.render(Paint::Plain));
            return Ok(Exit::Failure);
        }
    };
    if args.print_config {
        print!("{text}");
        return Ok(Exit::Success);
    }
    let format = match config.log.format {
        ConfiguredFormat::Text => LogFormat::Text,
        ConfiguredFormat::Json => LogFormat::Json,
    };
    let log = telemetry::init(&config.log.level, format)?;
    info!(
        config = source.name(),
        version = env!("CARGO_PKG_VERSION"),
        "starting"
    );
    open_files::check(open_files::raise(), config.server.max_connections);
    for warning in old {
        warn!("{warning}");
    }
    let surroundings = Surroundings {
        log: Some(log),
        compiled: compiled::folder_of_user(),
    };
    let app = App::build_with(source, surroundings).await?;
    until_signalled(app, signals).await
}

/// The configuration, and what to say about the old conductor's environment.
fn choose_source(args: &ServeArgs, old: &OldEnvironment) -> Result<(ConfigSource, Vec<String>)> {
    if let Some(file) = &args.config {
        return Ok((ConfigSource::File(file.clone()), old.ignored()));
    }
    if let (true, Some(path)) = (args.quick.is_empty(), &old.config_path) {
        let mut imported = import_file(path, old)?;
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
    let has_key = std::env::var_os("OPENAI_API_KEY").is_some_and(|key| !key.is_empty());
    Ok((
        ConfigSource::Text(from_flags(&args.quick, has_key)?),
        old.ignored(),
    ))
}

/// Runs a router until a signal has stopped it: the first drains, the second cuts.
///
/// # Errors
/// Where the router's task failed.
pub(crate) async fn until_signalled(app: App, mut signals: Signals) -> Result<Exit> {
    let shutdown = CancellationToken::new();
    let reload = app.reload_request();
    let mut router = app.spawn(shutdown.clone());
    loop {
        tokio::select! {
            exit = &mut router => return exit.context("the router's task failed"),
            asked = signals.next() => match asked {
                Asked::Reload => reload.notify_one(),
                Asked::Stop if shutdown.is_cancelled() => {
                    info!("asked twice: not waiting for running requests");
                    return Ok(Exit::DrainCut);
                }
                Asked::Stop => {
                    info!("draining; a second signal ends it at once");
                    shutdown.cancel();
                }
            },
        }
    }
}

/// `conductor check`: prints every mistake of a file.
///
/// # Errors
/// Where the file cannot be read.
pub fn check(file: &Path, json: bool) -> Result<Exit> {
    let source = ConfigSource::File(file.to_owned());
    let parsed = crate::check::check(&source)?;
    let told = format!("{}{}: {}\n", parsed.rendered, file.display(), parsed.summary());
    print::print(&parsed.problems, told, json)?;
    Ok(if parsed.errors == 0 {
        Exit::Success
    } else {
        Exit::Failure
    })
}

/// `conductor import`: prints an old conductor's configuration in our form.
///
/// # Errors
/// Where the file cannot be read or is no such configuration.
pub fn import(file: &Path) -> Result<Exit> {
    let imported = import_file(file, &OldEnvironment::of_process())?;
    for warning in &imported.warnings {
        eprintln!("warning: {warning}");
    }
    print!("{}", imported.toml);
    Ok(Exit::Success)
}
