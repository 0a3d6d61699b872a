//! `conductor check --live`: runs the live check on the workers of a configuration, and prints its report.

mod targets;

use admin_pages::control::ProblemReport;
use anyhow::{Context, Result};
use conductor_tools::{Exit, paint, print};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use live_check::{Glyphs, LiveReport, PoolTarget, check_all};
use local_files::ConfigSource;
use serde::Serialize;

use self::targets::pool_targets;
use crate::check::Checked;
use crate::reload::{self, ConfigText, Steps};

/// Output of `--output json`.
#[derive(Serialize)]
struct JsonReport<'a> {
    problems: &'a [ProblemReport],
    live: Option<&'a LiveReport>,
}

/// Prints the outcome of the offline check, whose text is `offline`, and of the live one. A configuration with errors is
/// not live checked: no router runs it.
///
/// # Errors
/// If the resources of the configuration cannot be read any more, or standard output cannot be written.
pub(crate) fn run(source: &ConfigSource, checked: &Checked, offline: &str, json: bool) -> Result<Exit> {
    let mut live = None;
    if checked.errors == 0 {
        let pools = targets(source)?;
        let bar = progress_bar(pools.iter().map(|pool| pool.workers.len()).sum());
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        live = Some(runtime.block_on(check_all(&pools, || bar.inc(1))));
        bar.finish_and_clear();
        // A socket that still connects is not waited for.
        runtime.shutdown_background();
    }
    let report = JsonReport {
        problems: &checked.problems,
        live: live.as_ref(),
    };
    let printed = match &live {
        Some(live) => format!(
            "{offline}\n{}",
            live_check::render(live, Glyphs::of_environment(), paint::of_stdout())
        ),
        None => format!("{offline}the workers are not checked: correct the errors first\n"),
    };
    print::print(&report, printed, json)?;
    let is_good = live.is_some_and(|live| live.failed == 0);
    Ok(if is_good { Exit::Success } else { Exit::Failure })
}

/// Returns the workers that a configuration without errors names.
fn targets(source: &ConfigSource) -> Result<Vec<PoolTarget>> {
    let text = source.read()?;
    let config = reload::read(source, &text)?.config;
    let named = ConfigText {
        config: &config,
        source,
        text: &text,
    };
    let resources = reload::read_resources(&Steps::default(), None, named);
    let resources = resources.context("read what the configuration names")?;
    Ok(pool_targets(&config, &resources))
}

/// Returns a progress bar, on a terminal only.
fn progress_bar(workers: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(workers as u64), ProgressDrawTarget::stderr_with_hz(10));
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos} of {len} workers answered") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

#[cfg(test)]
mod tests;
