//! Cache knowledge that is missing: for each pool with a cache-aware route what is missing, why, and how to cure it.
//!
//! The warnings are computed from the reports of the request path, of the discovery and of the feeds. `/status` shows
//! them while they last; `log.rs` writes each into the log, once at first and then at most once a minute.

mod log;
#[cfg(test)]
mod tests;
mod warning;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kv_feed::{FeedCause, FeedStatus, KvFeeds};
use proxy::{Health, PoolReport, SnapshotCell, StreakReport};
use routing::WorkerId;
use tokio_util::sync::CancellationToken;

use self::log::WarningLog;
pub use self::warning::Warning;
use kv_plane::{Discovery, TargetReport};

/// Interval of the log.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A feed may be unconnected for so long without a warning: engines start, and sockets connect.
const FEED_GRACE: Duration = Duration::from_secs(10);
/// Most workers that a warning names.
const MOST_NAMED: usize = 8;

/// Sources of the warnings.
#[derive(Debug, Clone)]
pub struct KnowledgeSources {
    /// Snapshot of the request path.
    pub cell: Arc<SnapshotCell>,
    /// Discovery of event feeds.
    pub discovery: Arc<Discovery>,
    /// Event feeds.
    pub feeds: Arc<KvFeeds>,
}

impl KnowledgeSources {
    /// Returns the warnings of each of these pools, in their order.
    #[must_use]
    pub fn warnings(&self, pools: &[PoolReport]) -> Vec<Vec<Warning>> {
        let (targets, feeds) = (self.discovery.report(), self.feeds.status());
        pools.iter().map(|pool| of_pool(pool, &targets, &feeds)).collect()
    }

    /// Keeps the log up to date until `stop` is cancelled.
    pub async fn keep_log(self, stop: CancellationToken) {
        let mut log = WarningLog::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let pools = self.cell.load().report();
            let warnings = self.warnings(&pools);
            let named = pools.iter().map(|pool| &*pool.name).zip(&warnings);
            for line in log.look(named, Instant::now()) {
                line.write();
            }
        }
    }
}

/// Returns the warnings of a pool.
fn of_pool(pool: &PoolReport, targets: &[TargetReport], feeds: &[FeedStatus]) -> Vec<Warning> {
    let mut warnings = of_pairs(pool);
    if pool.is_cache_aware {
        // Problems of a worker that is not in service are in its health.
        let in_service = pool.workers.iter().filter(|worker| worker.health.is_in_service());
        let in_service: HashSet<WorkerId> = in_service.map(|worker| worker.worker.id()).collect();
        warnings.extend(of_tokens(pool));
        warnings.extend(of_discovery(&in_service, targets));
        warnings.extend(of_feeds(&in_service, feeds));
    }
    warnings
}

fn of_pairs(pool: &PoolReport) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if let Some(streak) = &pool.handover_failures {
        warnings.push(counted(
            "no-handover",
            "prefill answers handed no KV cache over, and the decode workers computed the prompts",
            streak,
            "start the prefill engines with --kv-transfer-config, and set the pool's `pd` dialect to their connector",
        ));
    }
    let unknown = pool
        .workers
        .iter()
        .filter(|worker| worker.health == Health::EngineUnknown);
    let unknown: Vec<(&str, Option<&str>)> = unknown
        .map(|worker| (&*worker.worker.spec().name, worker.reason.text.as_deref()))
        .collect();
    warnings.extend(concerned(
        "engine-unknown",
        "the engine ids or bootstrap ports of prefill workers are unknown, and they get no requests",
        &unknown,
        "check the workers' `bootstrap` address and that the engines run the Mooncake connector, or answer /server_info (SGLang)",
    ));
    warnings
}

fn of_tokens(pool: &PoolReport) -> impl Iterator<Item = Warning> {
    const FIX: &str = "name the model's tokenizer in [models.NAME] to make the tokens in the router, or raise `tokenize-timeout`";
    let timeouts = pool.token_timeouts.as_ref().map(|streak| {
        let what =
            "the tokens of prompts were not known in time, and these were routed without cache knowledge";
        counted("tokenize-timeouts", what, streak, FIX)
    });
    let failures = pool.token_failures.as_ref().map(|streak| {
        let what =
            "the tokens of prompts could not be determined, and these were routed without cache knowledge";
        counted("tokenize-failures", what, streak, FIX)
    });
    timeouts.into_iter().chain(failures)
}

fn of_discovery(in_service: &HashSet<WorkerId>, targets: &[TargetReport]) -> Option<Warning> {
    let is_concerned = |target: &&TargetReport| {
        target.reason.is_some() && target.workers.iter().any(|id| in_service.contains(id))
    };
    let without: Vec<(&str, Option<&str>)> = targets
        .iter()
        .filter(is_concerned)
        .filter(|target| target.is_queried)
        .map(|target| (&*target.worker, target.reason.as_deref()))
        .collect();
    concerned(
        "no-kv-events",
        "no KV events were found for workers: policies see no cached prefixes there",
        &without,
        "start the engines with KV events enabled, give the workers `kv-events = \"tcp://...\"`, or say `kv-events = \"off\"`",
    )
}

fn of_feeds(in_service: &HashSet<WorkerId>, feeds: &[FeedStatus]) -> Vec<Warning> {
    let own = || feeds.iter().filter(|feed| in_service.contains(&feed.worker));
    let named = |feed: &FeedStatus| feed.reason.text();
    let is_down = |feed: &&FeedStatus| {
        let causes = [
            FeedCause::NotConnected,
            FeedCause::ConnectionLost,
            FeedCause::NotOpened,
        ];
        causes.contains(&feed.reason.cause) && feed.reason.lasted >= FEED_GRACE
    };
    let down: Vec<_> = own()
        .filter(is_down)
        .map(|feed| (&*feed.name, named(feed)))
        .collect();
    let unanswered = own().filter(|feed| feed.reason.is_unanswered);
    let unanswered: Vec<_> = unanswered.map(|feed| (&*feed.name, None)).collect();
    let down = concerned(
        "feed-down",
        "the KV events of workers do not arrive: policies see no cached prefixes there",
        &down,
        "check the publisher's address and port (`kv-events`), and that it is reachable from the router",
    );
    let unanswered = concerned(
        "replay-unanswered",
        "requests for a replay of KV events are not answered: what was cached before is not known",
        &unanswered,
        "set the engine's replay_endpoint and the worker's `kv-replay` to the same address, or leave `kv-replay` out",
    );
    down.into_iter().chain(unanswered).collect()
}

fn counted(cause: &'static str, what: &str, streak: &StreakReport, fix: &'static str) -> Warning {
    let (subject, error) = (&streak.subject, &streak.error);
    Warning {
        cause,
        message: format!(
            "{what}: {} of {}; the last for `{subject}`: {error}",
            streak.failures, streak.total
        ),
        fix,
        count: streak.failures,
    }
}

/// Returns a warning that concerns these workers, each with its reason. `None` if there are none.
fn concerned(
    cause: &'static str,
    what: &str,
    workers: &[(&str, Option<&str>)],
    fix: &'static str,
) -> Option<Warning> {
    let (_, reason) = workers.first()?;
    let names: Vec<&str> = workers.iter().take(MOST_NAMED).map(|(name, _)| *name).collect();
    let more = match workers.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    Some(Warning {
        cause,
        message: format!("{what} ({}{more}){reason}", names.join(", ")),
        fix,
        count: workers.len() as u64,
    })
}
