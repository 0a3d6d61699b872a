//! `conductor demo`: the router over mock engines in one process. No GPU, no files needed.
//!
//! The demo writes a real `conductor.toml` and a policy folder into a temporary folder and runs from them, so that
//! everything a user would do (edit, drop a policy, break the file) can be tried at once. It sends itself conversations
//! and has an admin key, so that every page of the dashboard has data and every button works.

mod banner;
mod compare;
mod fleet;
mod progress;
mod traffic;
mod validate;

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result};
use mooncake_compat::fleet_flags::port_after;
use tempfile::TempDir;

use self::fleet::{ADMIN_KEY, demo_config, fleet};
use crate::app::{App, RuntimeOptions};
use crate::cli::DemoArgs;
use crate::serve;
use crate::signals::Signals;
use conductor_tools::{Exit, client_key, paint};
use local_files::ConfigSource;
use logging::{LogFormat, LogLevel};
use policy_store::{EngineOptions, user_cache_folder};

/// Runs the demo until a signal, or the comparison.
///
/// # Errors
/// If the fleet or the router does not start.
pub async fn run(args: &DemoArgs) -> Result<Exit> {
    let level = args.log_level.as_deref();
    if args.compare {
        // Only what goes wrong is logged beside the progress and the table.
        return Box::pin(compare::run(args, LogLevel::choose(level, "warn"))).await;
    }
    if let Some(folder) = &args.validate {
        let level = LogLevel::choose(level, "warn");
        return Box::pin(validate::run(args, folder, level)).await;
    }
    let log = logging::init(
        LogLevel::choose(level, "info"),
        LogFormat::Text {
            is_coloured: paint::on_stderr(),
        },
    )?;
    let mut signals = Signals::listen().context("take over signals")?;
    let fleet = fleet(args.workers, args.seed).await?;
    let folder = tempfile::Builder::new()
        .prefix("conductor-demo-")
        .tempdir()
        .context("make a folder for the demo")?;
    let admin = SocketAddr::new(args.listen.ip(), port_after(args.listen));
    let key = write_key(&folder)?;
    let text = demo_config(args.listen, admin, &fleet);
    let file = write_config(&folder, &text)?;
    let options = RuntimeOptions {
        log: Some(log),
        engine: EngineOptions {
            cache_folder: user_cache_folder(),
            compiles_in_child: true,
        },
        program: serve::own_program(),
    };
    let build = Box::pin(App::build_with(ConfigSource::File(file.clone()), text, options));
    let Some(built) = serve::unless_stopped(build, &mut signals).await else {
        return Ok(Exit::Success);
    };
    let app = built?;
    banner::print(&app, &file, fleet.len(), &key)?;
    let base_url = (!args.no_traffic).then(|| format!("http://{}", app.addr()));
    let exit = tokio::select! {
        exit = Box::pin(serve::until_signalled(app, signals)) => exit?,
        never = traffic::send(base_url, args.seed) => match never {},
    };
    for engine in fleet {
        engine.stop().await;
    }
    Ok(exit)
}

fn write_config(folder: &TempDir, text: &str) -> Result<std::path::PathBuf> {
    fs::create_dir(folder.path().join("policies")).context("make the policy folder")?;
    let file = folder.path().join("conductor.toml");
    fs::write(&file, text).context("write the demo's configuration")?;
    Ok(file)
}

/// Writes a fresh admin key, which only this user can read.
fn write_key(folder: &TempDir) -> Result<String> {
    let key = client_key::fresh().context("make an admin key")?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let file = options.open(folder.path().join(ADMIN_KEY));
    file.and_then(|mut file| file.write_all(key.as_bytes()))
        .context("write the demo's admin key")?;
    Ok(key)
}
