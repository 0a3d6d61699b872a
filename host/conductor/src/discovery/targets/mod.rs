//! When to ask which worker, and what each has told. Pure: answers, states and the time come in.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use inference_api::EventSource;
use kv_feed::{CurveKeys, Endpoint, FeedSpec, FeedState};
use routing::{DpRank, WorkerId};
use serde::Serialize;
use tracing::{debug, info, warn};

use super::ask::Answer;
use super::trust::{RefusedSource, judge};
use observability::error_chain;

/// The first pause before a worker is asked again, doubled each time ...
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// ... up to this, while it does not answer or its feeds are down ...
const LAST_PAUSE: Duration = Duration::from_secs(60);
/// ... or this, where it answered that it publishes nothing: another engine may follow at its address.
const LAST_PAUSE_WITHOUT: Duration = Duration::from_secs(300);
/// Feeds may be down for so long before the worker is asked whether they moved.
const FIRST_DOUBT: Duration = Duration::from_secs(5);

/// A server to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Unique among the targets.
    pub(crate) name: Box<str>,
    /// `http://host:port`.
    pub(crate) url: Box<str>,
    /// Whose caches it tells of: one worker's, or those of one for each data-parallel rank.
    pub(crate) publishers: Box<[Publisher]>,
    /// Hosts besides its own at which it may say that it publishes, in lower case.
    pub(crate) hosts: Box<[Box<str>]>,
    /// Whether it may name sockets in files though it is on another machine.
    pub(crate) ipc: bool,
    /// Keys of its publishers.
    pub(crate) curve: Option<CurveKeys>,
}

/// A worker behind a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Publisher {
    pub(crate) worker: WorkerId,
    pub(crate) name: Box<str>,
    /// The one rank that is its; none: all of them are.
    pub(crate) rank: Option<DpRank>,
}

impl Target {
    /// Whose the blocks of a rank are; none where nobody is configured for it.
    fn publisher(&self, rank: u16) -> Option<&Publisher> {
        let is_its = |publisher: &&Publisher| publisher.rank.is_none_or(|own| own.0 == rank);
        self.publishers.iter().find(is_its)
    }
}

/// How a worker answers, for the admin page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TargetReport {
    pub(crate) worker: Box<str>,
    /// `asking`: it has not answered yet; `none`: it publishes nothing, or has no page that tells; `found`.
    pub(crate) state: &'static str,
    pub(crate) feeds: usize,
    /// Why no feed is known; none where some are.
    pub(crate) reason: Option<String>,
    /// Endpoints that it names and that are not connected to.
    pub(crate) refused: Vec<RefusedSource>,
    /// Until it is asked again; none while its feeds are well.
    pub(crate) next_try_s: Option<u64>,
    /// Whether it was asked at all.
    #[serde(skip)]
    pub(crate) is_asked: bool,
    /// The workers whose caches it tells of.
    #[serde(skip)]
    pub(crate) workers: Vec<WorkerId>,
}

#[derive(Debug)]
struct Known {
    target: Target,
    /// None until it has answered.
    sources: Option<Vec<EventSource>>,
    /// What it named besides.
    refused: Vec<RefusedSource>,
    /// When to ask next; none while its feeds are well.
    due: Option<Instant>,
    pause: Duration,
    /// Why the last question brought no feed.
    trouble: Option<String>,
}

/// The workers that are asked.
#[derive(Debug, Default)]
pub(super) struct Targets(Vec<Known>);

impl Targets {
    /// These workers from now on, with what those among them told that were asked before.
    pub(super) fn next(&self, wanted: Vec<Target>, now: Instant) -> Self {
        let known = |target: Target| {
            let before = self.0.iter().find(|known| known.target == target);
            Known {
                sources: before.and_then(|known| known.sources.clone()),
                refused: before.map_or(Vec::new(), |known| known.refused.clone()),
                due: before.map_or(Some(now), |known| known.due),
                pause: before.map_or(FIRST_PAUSE, |known| known.pause),
                trouble: before.and_then(|known| known.trouble.clone()),
                target,
            }
        };
        Self(wanted.into_iter().map(known).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes notice of feeds that are down: their worker is to be asked soon.
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
                (false, Some(_)) => known.due = None,
                _ => {}
            }
        }
    }

    /// Those to be asked now. Each is not due again until its pause is over, whether it answers or not.
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

    /// Takes in an answer; whether the feeds changed.
    pub(super) fn learn(&mut self, target: &Target, answer: Answer, now: Instant) -> bool {
        let Some(known) = self.0.iter_mut().find(|known| known.target == *target) else {
            return false;
        };
        let name = &known.target.name;
        known.trouble = None;
        let mut refused = Vec::new();
        let told = match answer {
            Answer::Sources(sources) => {
                if sources.is_empty() {
                    known.trouble = Some("the engine says that it publishes no KV events".to_owned());
                }
                let followed;
                (followed, refused) = judge(target, sources);
                if let ([], [first, ..]) = (&followed[..], &refused[..]) {
                    let RefusedSource { endpoint, reason, .. } = first;
                    known.trouble = Some(format!(
                        "`{endpoint}`, which the engine names, is refused: {reason}"
                    ));
                }
                followed
            }
            Answer::Absent => {
                known.trouble =
                    Some("the engine has no page that says where it publishes KV events".to_owned());
                Vec::new()
            }
            Answer::Failed(error) => {
                let error = error_chain(&error);
                debug!(worker = %name, error, "failed to ask for KV event feeds");
                known.trouble = Some(error);
                // Feeds that were found stay while nobody tells of others: they may come back.
                known.ask_later(LAST_PAUSE, now);
                return false;
            }
        };
        if known.refused != refused {
            known.refused = refused;
            for RefusedSource {
                rank,
                endpoint,
                reason,
            } in &known.refused
            {
                warn!(worker = %name, rank, ?endpoint, reason, "refused to follow KV events where the engine says that they are");
            }
        }
        let is_new = known.sources.as_ref() != Some(&told);
        if is_new {
            match told.len() {
                0 => info!(worker = %name, "no KV events found: policies see no cached prefixes there"),
                feeds => info!(worker = %name, feeds, "found KV event feeds"),
            }
            warn_of_strangers(&known.target, &told);
        }
        match (told.is_empty(), is_new) {
            (true, _) => known.ask_later(LAST_PAUSE_WITHOUT, now),
            (false, false) => known.ask_later(LAST_PAUSE, now),
            // Nothing more to ask unless they turn out to be down.
            (false, true) => known.due = None,
        }
        let had_feeds = known.has_feeds();
        known.sources = Some(told);
        is_new && (had_feeds || known.has_feeds())
    }

    /// The feeds that were found.
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
                    curve: known.target.curve.clone(),
                })
            })
        })
    }

    pub(super) fn report(&self, now: Instant) -> Vec<TargetReport> {
        let report = |known: &Known| TargetReport {
            worker: known.target.name.clone(),
            state: match known.sources.as_deref() {
                None => "asking",
                Some([]) => "none",
                Some(_) => "found",
            },
            feeds: known.sources.as_ref().map_or(0, Vec::len),
            reason: known.reason(),
            refused: known.refused.clone(),
            is_asked: known.sources.is_some() || known.trouble.is_some(),
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

impl Known {
    fn has_feeds(&self) -> bool {
        self.sources.as_ref().is_some_and(|sources| !sources.is_empty())
    }

    fn reason(&self) -> Option<String> {
        if self.has_feeds() {
            return None;
        }
        let trouble = self.trouble.clone();
        Some(trouble.unwrap_or_else(|| "the engine was not asked yet".to_owned()))
    }

    /// After a pause, and the next time after a longer one.
    fn ask_later(&mut self, longest: Duration, now: Instant) {
        self.due = Some(now + self.pause);
        self.pause = (self.pause * 2).min(longest);
    }
}

/// Tells of ranks that are there and not configured, or the other way round: requests pinned to those are refused.
fn warn_of_strangers(target: &Target, told: &[EventSource]) {
    let is_told = |rank: DpRank| told.iter().any(|source| source.rank == rank.0);
    let configured = target.publishers.iter().filter_map(|publisher| publisher.rank);
    let absent: Vec<u16> = configured
        .filter(|rank| !is_told(*rank))
        .map(|rank| rank.0)
        .collect();
    let unknown: Vec<u16> = told
        .iter()
        .map(|source| source.rank)
        .filter(|&rank| target.publisher(rank).is_none())
        .collect();
    let is_as_configured = absent.is_empty() && unknown.is_empty();
    if !told.is_empty() && !is_as_configured {
        warn!(
            worker = %target.name,
            ?absent,
            ?unknown,
            "`data-parallel` is not what the engine tells of its ranks"
        );
    }
}

#[cfg(test)]
mod tests;
