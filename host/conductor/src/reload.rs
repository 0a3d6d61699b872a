//! The one writer. A thread of its own reads the configuration and the policies whenever something may have changed,
//! and puts a new snapshot in force when they are good.
//!
//! The contract of a reload: what it reads is valid and applied as a whole to new requests, or what was in force
//! stays in force and the reason is logged, counted and shown. Compiling happens here, never on a request's thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use conductor_config::{Config, Diagnostics, Known, Paint, Parsed, Severity};
use kv_feed::KvFeeds;
use proxy::{ProxyMetrics, Snapshot, SnapshotCell, SnapshotError, SnapshotSpec};
use routing::{Fleet, Generation, Policy};
use thiserror::Error;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use crate::builtin;
use crate::compose;
use crate::config_source::{ConfigSource, ReadConfigError};
use crate::metrics::ControlMetrics;
use crate::policy_library::{PolicyLibrary, Reconciled, chain};
use crate::status::{ConfigReport, ProblemReport, Status};
use crate::telemetry::LogFilter;
use crate::watch::FolderWatch;

/// Changes come in bursts (write, rename, chmod): wait until it has been quiet for this long...
const QUIET: Duration = Duration::from_millis(50);
/// ...but not longer than this.
const PATIENCE: Duration = Duration::from_millis(500);
/// A look without being told: folders that were replaced or lie on a network tell nothing.
const UNASKED: Duration = Duration::from_secs(2);
/// The next look at a file that seemed half-written.
pub(crate) const UNSETTLED: Duration = Duration::from_millis(100);

/// What the reload thread is told.
#[derive(Debug)]
pub(crate) enum Bell {
    /// Some watched folder changed.
    Changed,
    /// Somebody wants a reload now, and to know how it went.
    Asked(oneshot::Sender<ConfigReport>),
    /// The router stops.
    Stop,
}

/// Everything a reload works on.
pub(crate) struct Reloader {
    pub(crate) source: ConfigSource,
    pub(crate) library: PolicyLibrary,
    pub(crate) feeds: Arc<KvFeeds>,
    pub(crate) cell: Arc<SnapshotCell>,
    pub(crate) status: Status,
    pub(crate) metrics: ControlMetrics,
    pub(crate) proxy_metrics: ProxyMetrics,
    pub(crate) log: Option<LogFilter>,
    pub(crate) in_force: InForce,
}

/// What the last successful reload put in force.
#[derive(Debug)]
pub(crate) struct InForce {
    /// The text it came from.
    pub(crate) text: String,
    pub(crate) config: Config,
    pub(crate) fleet: Fleet,
    pub(crate) generation: Generation,
}

/// The configuration cannot be put in force.
#[derive(Debug, Error)]
pub enum RefusedConfig {
    /// It cannot be read.
    #[error("failed to read the configuration")]
    Read(#[source] ReadConfigError),
    /// It has mistakes.
    #[error("the configuration has {} mistakes:\n{}", .0.error_count(), .0.render(Paint::Plain))]
    Invalid(Diagnostics),
    /// It needs policies of which no version ever worked.
    #[error("the configuration needs policies that cannot be had: {}", list(.0))]
    Policies(Vec<ProblemReport>),
}

fn list(problems: &[ProblemReport]) -> String {
    problems
        .iter()
        .map(|problem| problem.message.as_str())
        .collect::<Vec<_>>()
        .join("; ")
}

/// Reads a configuration as this binary does.
///
/// # Errors
/// Every mistake.
pub(crate) fn read(source: &ConfigSource, text: &str) -> Result<Parsed, Diagnostics> {
    let known = Known {
        builtins: &builtin::names(),
        default_policy: builtin::DEFAULT,
        files: source,
    };
    Config::parse(&source.name(), text, &known)
}

/// Reads a configuration and logs its warnings.
///
/// # Errors
/// [`RefusedConfig`], with every mistake.
pub(crate) fn parse(source: &ConfigSource, text: &str) -> Result<Config, RefusedConfig> {
    let parsed = read(source, text).map_err(RefusedConfig::Invalid)?;
    for warning in reports(&parsed.warnings) {
        let ProblemReport {
            line,
            column,
            message,
            help,
            ..
        } = warning;
        warn!(line, column, help, "configuration: {message}");
    }
    Ok(parsed.config)
}

/// Routes whose policy never worked, as mistakes of the configuration.
pub(crate) fn missing_policies(config: &Config, library: &PolicyLibrary) -> Vec<ProblemReport> {
    let mut named: Vec<&str> = config.routes.iter().map(|route| route.policy.as_str()).collect();
    named.sort_unstable();
    named.dedup();
    let without = named.into_iter().filter(|name| library.active(name).is_none());
    without
        .map(|name| {
            let place = config
                .policies
                .iter()
                .find(|policy| policy.name == name)
                .map(|policy| policy.source_at);
            ProblemReport {
                code: "policy-unavailable".to_owned(),
                severity: "error",
                line: place.map_or(1, |place| place.line),
                column: place.map_or(1, |place| place.column),
                message: format!(
                    "policy `{name}`: {}",
                    library.problem(name).unwrap_or("its file is still being written")
                ),
                help: Some(
                    "mend or add the component; it is looked at again as soon as its file changes".to_owned(),
                ),
            }
        })
        .collect()
}

/// A snapshot of what the configuration says. Every policy of a route must have a version that works.
pub(crate) fn snapshot(
    previous: Option<&Snapshot>,
    config: &Config,
    fleet: &Fleet,
    library: &PolicyLibrary,
    generation: Generation,
    metrics: &ProxyMetrics,
) -> Result<Snapshot, SnapshotError> {
    let routes = config.routes.iter().filter_map(|route| {
        let policy: Arc<dyn Policy> = library.active(&route.policy)?;
        Some(compose::route_spec(route, policy))
    });
    let spec = SnapshotSpec {
        generation,
        pools: compose::pool_specs(config, fleet),
        routes: routes.collect(),
        limits: compose::request_limits(config),
    };
    Snapshot::next(previous, spec, metrics)
}

impl Reloader {
    /// Starts the thread. Ring the returned bell to make it look.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(crate) fn spawn(self) -> std::io::Result<SyncSender<Bell>> {
        let (bell, rung) = sync_channel(16);
        let watched = bell.clone();
        std::thread::Builder::new()
            .name("reload".into())
            .spawn(move || self.run(watched, &rung))?;
        Ok(bell)
    }

    fn run(mut self, bell: SyncSender<Bell>, rung: &Receiver<Bell>) {
        let mut watch = FolderWatch::start(move || {
            // A full channel is rung already.
            let _ = bell.try_send(Bell::Changed);
        })
        .map_err(|error| {
            warn!(
                error = chain(&error),
                "changes are noticed only every {UNASKED:?}"
            )
        })
        .ok();
        let mut pause = UNASKED;
        loop {
            let paths = self.paths();
            if let Some(Err(error)) = watch
                .as_mut()
                .map(|watch| watch.set(paths.iter().map(PathBuf::as_path)))
            {
                warn!(
                    error = chain(&error),
                    "changes there are noticed only every {UNASKED:?}"
                );
            }
            let mut asked = Vec::new();
            match rung.recv_timeout(pause) {
                Ok(first) => {
                    if !collect(first, rung, &mut asked) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            pause = if self.reload() { UNSETTLED } else { UNASKED };
            for waiting in asked {
                // Whoever asked may have left.
                let _ = waiting.send(self.status.config());
            }
        }
    }

    /// The files and folders that matter.
    fn paths(&self) -> Vec<PathBuf> {
        let config = &self.in_force.config;
        let mut paths: Vec<PathBuf> = self.source.file().map(PathBuf::from).into_iter().collect();
        paths.extend(compose::policy_folder(config, &self.source));
        paths.extend(
            compose::wanted_policies(config, &self.source)
                .into_iter()
                .filter_map(|wanted| wanted.file()),
        );
        paths
    }

    /// One reload. Returns whether some file seemed half-written and should be looked at again soon.
    pub(crate) fn reload(&mut self) -> bool {
        let candidate = self.candidate();
        let config = match &candidate {
            Ok(Some((_, config))) => config,
            Ok(None) => &self.in_force.config,
            Err(refused) => {
                self.refuse(problems(&self.source, refused));
                &self.in_force.config
            }
        };
        let done = self
            .library
            .reconcile(compose::wanted_policies(config, &self.source));
        self.tell(&done);
        let swapped = self.decides(&done.swapped);
        match candidate {
            Ok(candidate) => self.apply(candidate, swapped),
            Err(_) if swapped => self.put_in_force(),
            Err(_) => {}
        }
        self.status.set_policies(self.library.report());
        done.unsettled
    }

    /// Whether one of these policies decides for a route that is in force.
    fn decides(&self, policies: &[String]) -> bool {
        let routes = &self.in_force.config.routes;
        routes.iter().any(|route| policies.contains(&route.policy))
    }

    /// Forgets policies that neither the configuration nor the folder names any more.
    fn forget_unwanted(&mut self) {
        self.library
            .keep_only(&compose::wanted_policies(&self.in_force.config, &self.source));
    }

    /// The configuration as it is now; none where its text is the one in force.
    fn candidate(&self) -> Result<Option<(String, Config)>, RefusedConfig> {
        let text = self.source.read().map_err(RefusedConfig::Read)?;
        if text == self.in_force.text {
            return Ok(None);
        }
        let config = parse(&self.source, &text)?;
        Ok(Some((text, config)))
    }

    fn apply(&mut self, candidate: Option<(String, Config)>, swapped: bool) {
        let Some((text, config)) = candidate else {
            self.forget_unwanted();
            if swapped {
                self.put_in_force();
            }
            // The file may have been put back to what is in force.
            self.metrics.reload_unchanged();
            return self.status.change_config(|report| report.problems.clear());
        };
        let missing = missing_policies(&config, &self.library);
        if !missing.is_empty() {
            if swapped {
                self.put_in_force();
            }
            return self.refuse(missing);
        }
        let restart = needs_restart(&self.in_force.config, &config);
        if !restart.is_empty() {
            warn!(keys = restart.join(", "), "these changes need a restart");
        }
        if let Some(Err(error)) = self.log.as_ref().map(|log| log.set(&config.log.level)) {
            warn!(error = chain(&error), "kept the old log level");
        }
        let (fleet, change) = self.in_force.fleet.next(compose::worker_specs(&config));
        self.in_force = InForce {
            text,
            config,
            fleet,
            generation: self.in_force.generation,
        };
        self.forget_unwanted();
        if let Err(error) = self
            .feeds
            .set(compose::feed_specs(&self.in_force.config, &self.in_force.fleet))
        {
            error!(error = chain(&error), "kept the old event feeds");
        }
        self.put_in_force();
        self.metrics.reload_applied();
        self.status.change_config(|report| {
            report.reloads_applied += 1;
            report.problems.clear();
            report.needs_restart.extend(restart);
        });
        info!(
            generation = self.in_force.generation.0,
            added = change.added.len(),
            removed = change.removed.len(),
            changed = change.changed.len(),
            "configuration in force"
        );
    }

    /// Builds the next snapshot from what is in force and swaps it in.
    fn put_in_force(&mut self) {
        let InForce {
            config,
            fleet,
            generation,
            ..
        } = &mut self.in_force;
        *generation = Generation(generation.0 + 1);
        let previous = self.cell.load();
        match snapshot(
            Some(&previous),
            config,
            fleet,
            &self.library,
            *generation,
            &self.proxy_metrics,
        ) {
            Ok(next) => self.cell.store(next),
            // The configuration's own checks are stricter, so this is a gap between the two.
            Err(error) => {
                return error!(
                    error = chain(&error),
                    "the request path refused the configuration"
                );
            }
        }
        self.metrics.in_force(*generation);
        self.status.change_config(|report| {
            report.generation = generation.0;
            report.pools = config.pools.iter().map(|pool| pool.name.clone()).collect();
        });
    }

    fn refuse(&self, problems: Vec<ProblemReport>) {
        if self.status.config().problems == problems {
            return;
        }
        for problem in &problems {
            let ProblemReport {
                line,
                column,
                message,
                help,
                ..
            } = problem;
            error!(
                file = self.source.name(),
                line, column, help, "configuration refused, the old one stays: {message}"
            );
        }
        self.metrics.reload_refused();
        self.status.change_config(|report| {
            report.reloads_refused += 1;
            report.problems = problems;
        });
    }

    fn tell(&self, done: &Reconciled) {
        for name in &done.swapped {
            info!(policy = name, "policy in force");
            self.metrics.policy_swapped(name);
        }
        for (name, problem) in &done.failed {
            error!(
                policy = name,
                error = chain(problem),
                "policy refused; its last good version, if any, stays"
            );
            self.metrics.policy_refused(name);
        }
    }
}

/// Waits until it is quiet. Returns false when the router stops.
fn collect(first: Bell, rung: &Receiver<Bell>, asked: &mut Vec<oneshot::Sender<ConfigReport>>) -> bool {
    let started = Instant::now();
    let mut next = Some(first);
    while let Some(bell) = next {
        match bell {
            Bell::Stop => return false,
            Bell::Asked(waiting) => asked.push(waiting),
            Bell::Changed => {}
        }
        next = if started.elapsed() < PATIENCE {
            rung.recv_timeout(QUIET).ok()
        } else {
            None
        };
    }
    true
}

fn problems(source: &ConfigSource, refused: &RefusedConfig) -> Vec<ProblemReport> {
    match refused {
        RefusedConfig::Invalid(diagnostics) => reports(diagnostics),
        RefusedConfig::Policies(problems) => problems.clone(),
        RefusedConfig::Read(_) => vec![ProblemReport {
            code: "unreadable".to_owned(),
            severity: "error",
            line: 1,
            column: 1,
            message: format!("{}: {}", source.name(), chain(refused)),
            help: None,
        }],
    }
}

/// Diagnostics for tools.
pub(crate) fn reports(diagnostics: &Diagnostics) -> Vec<ProblemReport> {
    let report = |item: &conductor_config::Diagnostic| ProblemReport {
        code: item.code.as_str().to_owned(),
        severity: match item.severity() {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        line: item.primary.location.line,
        column: item.primary.location.column,
        message: item.message.clone(),
        help: item.help.clone(),
    };
    diagnostics.items().iter().map(report).collect()
}

/// Keys that are read only at start.
fn needs_restart(old: &Config, new: &Config) -> Vec<String> {
    let (was, is) = (&old.server, &new.server);
    let changed = [
        ("server.listen", was.listen != is.listen),
        ("server.admin-listen", was.admin_listen != is.admin_listen),
        (
            "server.max-connections",
            was.max_connections != is.max_connections,
        ),
        ("server.drain-timeout", was.drain_timeout != is.drain_timeout),
        ("log.format", old.log.format != new.log.format),
        ("index.max-blocks", old.index != new.index),
    ];
    changed
        .iter()
        .filter(|(_, changed)| *changed)
        .map(|(key, _)| (*key).to_owned())
        .collect()
}
