//! `conductor check --live`: queries every worker of a configuration and compares the answers with the configuration.
//!
//! `target` is the configuration of a worker, `probe` queries the worker (the only part with I/O), `judge` makes a list
//! of checks of both, `pool` compares the workers of a pool, and `text` prints. Nothing is changed anywhere: every
//! query is one that the router sends too.

mod clock;
mod judge;
mod observed;
mod pool;
mod probe;
mod report;
mod target;
mod text;

use std::collections::HashMap;

use anyhow::{Context, Result};
use futures_util::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use self::observed::Observed;
use self::report::{LiveReport, PoolReport, WorkerReport};
use self::target::{PoolTarget, WorkerTarget};
use self::text::Glyphs;
use crate::check::Checked;
use crate::paint;
use crate::reload::{self, Steps};
use crate::status::ProblemReport;
use conductor_tools::Exit;
use conductor_tools::print;
use local_files::ConfigSource;

/// Workers reached at the same time.
const AT_ONCE: usize = 16;

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
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        live = Some(runtime.block_on(check_all(&pools)));
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
            text::render(live, Glyphs::of_environment(), paint::of_stdout())
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
    let resources = reload::read_resources(&Steps::default(), None, (&config, source, &text));
    let resources = resources.context("read what the configuration names")?;
    Ok(target::pools(&config, &resources))
}

/// Queries all workers, a bounded number at a time, and checks the answers.
async fn check_all(pools: &[PoolTarget]) -> LiveReport {
    let workers: Vec<&WorkerTarget> = pools.iter().flat_map(|pool| &pool.workers).collect();
    let bar = &bar(workers.len());
    let asked = workers.into_iter().map(|worker| async move {
        let observed = Box::pin(probe::observe(worker)).await;
        bar.inc(1);
        (&*worker.name, observed)
    });
    let observed: HashMap<&str, Observed> = stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    bar.finish_and_clear();
    let nothing = Observed::default();
    let of = |worker: &WorkerTarget| observed.get(&*worker.name).unwrap_or(&nothing);
    let report = |target: &PoolTarget| PoolReport {
        pool: target.name.clone(),
        dialect: target.dialect.map(|dialect| dialect.as_str()),
        workers: target
            .workers
            .iter()
            .map(|worker| report_worker(worker, of(worker)))
            .collect(),
        checks: pool::checks(target, of),
    };
    LiveReport::new(pools.iter().map(report).collect())
}

fn report_worker(worker: &WorkerTarget, observed: &Observed) -> WorkerReport {
    WorkerReport {
        worker: worker.name.clone(),
        url: worker.url.clone(),
        role: worker.role.as_str(),
        checks: judge::checks(worker, observed),
    }
}

/// Returns a progress bar, on a terminal only.
fn bar(workers: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(workers as u64), ProgressDrawTarget::stderr_with_hz(10));
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos} of {len} workers answered") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

#[cfg(test)]
mod tests;
