//! Schedule of the queries for event sources, and the answers. Pure: answers, states and the time come in.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use inference_api::EventSource;
use kv_feed::{CurveKeys, Endpoint, FeedSpec, FeedState};
use routing::{DpRank, WorkerId};
use serde::Serialize;
use tracing::{debug, info, warn};
use worker_client::Authorization;

use super::endpoint_trust::{RefusedSource, trusted_sources};
use super::source_client::{PageTls, SourceAnswer};
use observability::error_chain;

/// First pause before a worker is queried again, doubled each time ...
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// ... up to this while it does not answer or its feeds are down ...
const LAST_PAUSE: Duration = Duration::from_secs(60);
/// ... or this if it publishes nothing: another engine may follow at its address.
const LAST_PAUSE_WITHOUT: Duration = Duration::from_secs(300);
/// Time that feeds may be down before the worker is queried again: they may have moved.
const FIRST_DOUBT: Duration = Duration::from_secs(5);

/// Server to query for event sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Unique among the targets.
    pub name: Box<str>,
    /// `http://host:port` or `https://host:port`.
    pub url: Box<str>,
    /// TLS settings of its pool.
    pub tls: PageTls,
    /// Key that it gets with each query, if that is the router's own.
    pub authorization: Authorization,
    /// Workers whose caches it reports: one, or one for each data-parallel rank.
    pub publishers: Box<[Publisher]>,
    /// Other hosts that its sources may have, in lower case.
    pub hosts: Box<[Box<str>]>,
    /// True if it may name file sockets although it is on another machine.
    pub ipc: bool,
    /// CURVE keys of its publishers.
    pub curve: Option<CurveKeys>,
}

/// Worker behind a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publisher {
    /// Worker whose blocks it publishes.
    pub worker: WorkerId,
    /// Name of the worker.
    pub name: Box<str>,
    /// Rank; `None` if all ranks are its own.
    pub rank: Option<DpRank>,
}

impl Target {
    /// Returns `true` if the other target is the same server with the same workers: an answer of one is the other's.
    fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.url == other.url && self.publishers == other.publishers
    }

    /// Returns `true` if the other target trusts the same endpoints.
    fn has_same_trust(&self, other: &Self) -> bool {
        self.hosts == other.hosts && self.ipc == other.ipc
    }

    /// Returns the publisher of a rank, if one is configured.
    fn publisher(&self, rank: u16) -> Option<&Publisher> {
        let is_its = |publisher: &&Publisher| publisher.rank.is_none_or(|own| own.0 == rank);
        self.publishers.iter().find(is_its)
    }
}

/// Report on a target, for the admin page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TargetReport {
    /// Name of the target.
    pub worker: Box<str>,
    /// `asking` before the first answer, `none` if it publishes nothing or has no such page, else `found`.
    pub state: &'static str,
    /// Number of its feeds.
    pub feeds: usize,
    /// Reason for having no feed, if it has none.
    pub reason: Option<String>,
    /// Endpoints that are not connected to.
    pub refused: Vec<RefusedSource>,
    /// Time until the next query; `None` while its feeds are up.
    pub next_try_s: Option<u64>,
    /// True after the first query.
    #[serde(skip)]
    pub is_queried: bool,
    /// Workers whose caches it reports.
    #[serde(skip)]
    pub workers: Vec<WorkerId>,
}

#[derive(Debug)]
struct TargetState {
    target: Target,
    /// Trusted sources of the last answer.
    sources: Option<Vec<EventSource>>,
    /// Refused sources of the last answer.
    refused: Vec<RefusedSource>,
    /// Next query; `None` while its feeds are up.
    due: Option<Instant>,
    pause: Duration,
    /// `true` from a change of its trusted hosts to the next answer: refused endpoints may be trusted by now.
    is_outdated: bool,
    /// Reason why the last query found no feed.
    trouble: Option<String>,
}

/// Targets that are queried.
#[derive(Debug, Default)]
pub(super) struct Targets(Vec<TargetState>);

impl Targets {
    /// Returns the state for other targets; those that stay keep their answers, as far as they still trust them.
    pub(super) fn next(&self, wanted: Vec<Target>, now: Instant) -> Self {
        let known = |target: Target| {
            let before = self.0.iter().find(|known| known.target.is_same(&target));
            match before {
                Some(known) => known.next(target, now),
                None => TargetState::new(target, now),
            }
        };
        Self(wanted.into_iter().map(known).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of targets that were not queried yet.
    pub(super) fn unqueried(&self) -> usize {
        let is_unqueried = |known: &&TargetState| !known.is_queried();
        self.0.iter().filter(is_unqueried).count()
    }

    /// Schedules a query of the targets whose feeds are down.
    pub(super) fn watch(&mut self, feeds: impl IntoIterator<Item = (WorkerId, FeedState)>, now: Instant) {
        let down = feeds
            .into_iter()
            .filter(|(_, state)| matches!(state, FeedState::Connecting | FeedState::Broken));
        let down: HashSet<WorkerId> = down.map(|(worker, _)| worker).collect();
        for known in self.0.iter_mut().filter(|known| known.has_feeds()) {
            let mut publishers = known.target.publishers.iter();
            let is_down = publishers.any(|publisher| down.contains(&publisher.worker));
            match (is_down, known.due) {
                (true, None) => {
                    known.pause = FIRST_DOUBT;
                    known.due = Some(now + FIRST_DOUBT);
                }
                (false, Some(_)) if !known.is_outdated => known.due = None,
                _ => {}
            }
        }
    }

    /// Returns the targets that are due. Each is due again after its pause, with or without an answer.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Target> {
        let mut due = Vec::new();
        for known in &mut self.0 {
            if known.due.is_some_and(|at| now >= at) {
                known.due = Some(now + known.pause);
                due.push(known.target.clone());
            }
        }
        due
    }

    /// Records an answer. Returns true if the feeds changed.
    pub(super) fn learn(&mut self, target: &Target, answer: SourceAnswer, now: Instant) -> bool {
        let Some(known) = self.0.iter_mut().find(|known| known.target == *target) else {
            return false;
        };
        let name = &known.target.name;
        known.trouble = None;
        let mut refused = Vec::new();
        let sources = match answer {
            SourceAnswer::Sources(sources) => {
                if sources.is_empty() {
                    known.trouble = Some("the engine reports that it publishes no KV events".to_owned());
                }
                let followed;
                (followed, refused) = trusted_sources(target, sources);
                if let Some(reason) = all_refused(&followed, &refused) {
                    known.trouble = Some(reason);
                }
                followed
            }
            SourceAnswer::Absent => {
                known.trouble = Some("the engine has no page with its KV event sources".to_owned());
                Vec::new()
            }
            SourceAnswer::Failed(error) => {
                let error = error_chain(&error);
                debug!(worker = %name, error, "failed to query the worker for KV event feeds");
                known.trouble = Some(error);
                // Known feeds stay until an answer names others: they may come back.
                known.query_later(LAST_PAUSE, now);
                return false;
            }
        };
        known.is_outdated = false;
        sort_by_endpoint(&mut refused);
        if known.refused != refused {
            warn_of_refused(name, &refused);
            known.refused = refused;
        }
        let is_new = known.sources.as_ref() != Some(&sources);
        if is_new {
            match sources.len() {
                0 => info!(worker = %name, "no KV events found: policies see no cached prefixes there"),
                feeds => info!(worker = %name, feeds, "found KV event feeds"),
            }
            warn_of_rank_mismatch(&known.target, &sources);
        }
        match (sources.is_empty(), is_new) {
            (true, _) => known.query_later(LAST_PAUSE_WITHOUT, now),
            (false, false) => known.query_later(LAST_PAUSE, now),
            // No query is needed unless they are down.
            (false, true) => known.due = None,
        }
        let had_feeds = known.has_feeds();
        known.sources = Some(sources);
        is_new && (had_feeds || known.has_feeds())
    }

    /// Returns the feeds that were found.
    pub(super) fn specs(&self) -> impl Iterator<Item = FeedSpec> {
        self.0.iter().flat_map(|known| {
            let sources = known.sources.iter().flatten();
            sources.filter_map(|source| {
                let publisher = known.target.publisher(source.rank)?;
                Some(FeedSpec {
                    worker: publisher.worker,
                    name: publisher.name.clone(),
                    endpoint: Endpoint::Connect(source.endpoint.clone()),
                    replay: source.replay.clone(),
                    topic: source.topic.clone(),
                    rank: Some(DpRank(source.rank)),
                    adapter: None,
                    curve: known.target.curve.clone(),
                })
            })
        })
    }

    pub(super) fn report(&self, now: Instant) -> Vec<TargetReport> {
        let report = |known: &TargetState| TargetReport {
            worker: known.target.name.clone(),
            state: match known.sources.as_deref() {
                None => "asking",
                Some([]) => "none",
                Some(_) => "found",
            },
            feeds: known.sources.as_ref().map_or(0, Vec::len),
            reason: known.reason(),
            refused: known.refused.clone(),
            is_queried: known.is_queried(),
            next_try_s: known.due.map(|due| due.saturating_duration_since(now).as_secs()),
            workers: known
                .target
                .publishers
                .iter()
                .map(|publisher| publisher.worker)
                .collect(),
        };
        self.0.iter().map(report).collect()
    }
}

impl TargetState {
    /// Returns the state of a target that was not queried yet.
    fn new(target: Target, now: Instant) -> Self {
        Self {
            target,
            sources: None,
            refused: Vec::new(),
            due: Some(now),
            pause: FIRST_PAUSE,
            is_outdated: false,
            trouble: None,
        }
    }

    /// Returns the state for the same server with other settings.
    fn next(&self, target: Target, now: Instant) -> Self {
        let has_same_trust = self.target.has_same_trust(&target);
        let (mut sources, mut refused) = (self.sources.clone(), self.refused.clone());
        let mut trouble = self.trouble.clone();
        if !has_same_trust && let Some(named) = sources.take() {
            let (followed, now_refused) = trusted_sources(&target, named);
            warn_of_refused(&target.name, &now_refused);
            trouble = all_refused(&followed, &now_refused).or(trouble);
            refused.extend(now_refused);
            sort_by_endpoint(&mut refused);
            sources = Some(followed);
        }
        // With another key or other TLS settings, the pages may open at once.
        let is_same_access =
            self.target.authorization == target.authorization && self.target.tls == target.tls;
        let keeps_schedule = has_same_trust && (self.has_feeds() || is_same_access);
        Self {
            sources,
            refused,
            due: if keeps_schedule { self.due } else { Some(now) },
            pause: if keeps_schedule { self.pause } else { FIRST_PAUSE },
            is_outdated: self.is_outdated || !has_same_trust,
            trouble,
            target,
        }
    }

    fn has_feeds(&self) -> bool {
        self.sources.as_ref().is_some_and(|sources| !sources.is_empty())
    }

    fn is_queried(&self) -> bool {
        self.sources.is_some() || self.trouble.is_some()
    }

    fn reason(&self) -> Option<String> {
        if self.has_feeds() {
            return None;
        }
        let trouble = self.trouble.clone();
        Some(trouble.unwrap_or_else(|| "the engine was not queried yet".to_owned()))
    }

    /// Schedules the next query after a pause, and doubles the pause.
    fn query_later(&mut self, longest: Duration, now: Instant) {
        self.due = Some(now + self.pause);
        self.pause = (self.pause * 2).min(longest);
    }
}

/// Returns the reason why no feed is followed, if the engine names only refused endpoints.
fn all_refused(followed: &[EventSource], refused: &[RefusedSource]) -> Option<String> {
    let ([], [RefusedSource { endpoint, reason, .. }, ..]) = (followed, refused) else {
        return None;
    };
    Some(format!(
        "`{endpoint}`, which the engine names, is refused: {reason}"
    ))
}

/// Sorts refused endpoints: answers name the same ones in any order.
fn sort_by_endpoint(refused: &mut [RefusedSource]) {
    refused.sort_by(|one, other| (one.rank, &one.endpoint).cmp(&(other.rank, &other.endpoint)));
}

/// Logs endpoints of a worker that are not followed.
fn warn_of_refused(worker: &str, refused: &[RefusedSource]) {
    for RefusedSource {
        rank,
        endpoint,
        reason,
    } in refused
    {
        warn!(%worker, rank, ?endpoint, reason, "refused to follow the KV event endpoints that the engine names");
    }
}

/// Logs ranks that are configured but absent, or the reverse: requests that are pinned to those are refused.
fn warn_of_rank_mismatch(target: &Target, sources: &[EventSource]) {
    let is_named = |rank: DpRank| sources.iter().any(|source| source.rank == rank.0);
    let configured = target.publishers.iter().filter_map(|publisher| publisher.rank);
    let absent: Vec<u16> = configured
        .filter(|rank| !is_named(*rank))
        .map(|rank| rank.0)
        .collect();
    let unknown: Vec<u16> = sources
        .iter()
        .map(|source| source.rank)
        .filter(|&rank| target.publisher(rank).is_none())
        .collect();
    let is_as_configured = absent.is_empty() && unknown.is_empty();
    if !sources.is_empty() && !is_as_configured {
        warn!(
            worker = %target.name,
            ?absent,
            ?unknown,
            "`data-parallel` does not match the ranks that the engine reports"
        );
    }
}

#[cfg(test)]
mod tests;
