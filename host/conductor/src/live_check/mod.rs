//! `conductor check --live`: runs the live check on the workers of a configuration, and prints its report.

mod sources;
mod targets;

use anyhow::{Context, Result};
use conductor_config::{Config, Diagnostics};
use conductor_tools::{Exit, paint, print};
use external_resources::{Certificates, ExternalResources, Keys, Tokenizers};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use live_check::{Glyphs, LiveReport, check_all};
use local_files::ConfigSource;
use serde::Serialize;
use worker_discovery::{SourceWorkers, lay_over};

use self::sources::SourceCheck;
use self::targets::pool_targets;
use crate::check::{Checked, ListedProblem};
use crate::compose::source_specs;
use crate::reload;

/// Output of `--output json`.
#[derive(Serialize)]
struct JsonReport<'a> {
    problems: Vec<ListedProblem<'a>>,
    /// Sources of workers.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sources: &'a [SourceCheck],
    live: Option<&'a LiveReport>,
}

/// Prints the outcome of the offline check, whose text is `offline`, and of the live one. A configuration with errors
/// is not live checked: no router runs it.
///
/// # Errors
/// If the resources of the configuration cannot be read any more, or standard output cannot be written.
pub(crate) fn run(source: &ConfigSource, checked: &Checked, offline: &str, json: bool) -> Result<Exit> {
    let mut live = None;
    let (mut sources, mut found) = (Vec::new(), String::new());
    if checked.errors == 0 {
        let (config, resources) = read_named(source)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (checks, workers) = runtime.block_on(query_sources(&config, &resources, source));
        let laid = lay_over(&config, &workers);
        found = sources::render(&checks, &laid);
        sources = checks;
        let pools = pool_targets(&laid.config, &resources);
        let bar = progress_bar(pools.iter().map(|pool| pool.workers.len()).sum());
        live = Some(runtime.block_on(check_all(&pools, || bar.inc(1))));
        bar.finish_and_clear();
        // A socket that still connects is not waited for.
        runtime.shutdown_background();
    }
    let report = JsonReport {
        problems: checked.listed(source),
        sources: &sources,
        live: live.as_ref(),
    };
    let printed = match &live {
        Some(live) => format!(
            "{offline}\n{found}{}",
            live_check::render(live, Glyphs::of_environment(), paint::of_stdout())
        ),
        None => format!("{offline}the workers are not checked: correct the errors first\n"),
    };
    print::print(&report, printed, json)?;
    let is_found = sources.iter().all(|source| source.error.is_none());
    let is_good = is_found && live.is_some_and(|live| live.failed == 0);
    Ok(if is_good { Exit::Success } else { Exit::Failure })
}

/// Queries all sources of workers. A source that needs a cluster around the router has an error instead.
async fn query_sources(
    config: &Config,
    resources: &ExternalResources,
    files: &ConfigSource,
) -> (Vec<SourceCheck>, Vec<SourceWorkers>) {
    let (mut specs, mut failed) = (Vec::new(), Vec::new());
    let given = source_specs(config, &resources.keys, files);
    for (source, spec) in config.discovery.iter().zip(given) {
        match spec {
            Ok(spec) => specs.push(spec),
            Err(error) => failed.push(SourceCheck::without_query(source, &error)),
        }
    }
    let (mut checks, workers) = sources::query_all(specs).await;
    checks.extend(failed);
    let position = |check: &SourceCheck| {
        let mut sources = config.discovery.iter();
        sources.position(|source| source.name == check.source)
    };
    checks.sort_by_key(position);
    (checks, workers)
}

/// Reads a configuration without errors, and the resources that it names. Keys that are not in this environment are
/// left out: the offline check warns of them, and workers and sources that need one answer 401.
fn read_named(source: &ConfigSource) -> Result<(Config, ExternalResources)> {
    let text = source.read()?;
    let config = reload::read(source, &text)?.config;
    let keys = Keys::present(&config, source);
    let problems = |problems| Diagnostics::new(&source.name(), &text, problems);
    let certificates = Certificates::read(None, &config, source).map_err(problems);
    let tokenizers = Tokenizers::read(None, &config, source).map_err(problems);
    let resources = ExternalResources {
        keys,
        certificates: certificates.context("read the certificates")?,
        tokenizers: tokenizers.context("read the tokenizers")?,
    };
    Ok((config, resources))
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
