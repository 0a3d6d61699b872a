//! When to ask which worker, and what each has told. Pure: answers, states and the time come in.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use inference_api::EventSource;
use kv_feed::{Endpoint, FeedSpec, FeedState};
use routing::{DpRank, WorkerId};
use serde::Serialize;
use tracing::{debug, info};

use super::ask::Answer;
use crate::policy_library::chain;

/// The first pause before a worker is asked again, doubled each time ...
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// ... up to this, while it does not answer or its feeds are down ...
const LAST_PAUSE: Duration = Duration::from_secs(60);
/// ... or this, where it answered that it publishes nothing: another engine may follow at its address.
const LAST_PAUSE_WITHOUT: Duration = Duration::from_secs(300);
/// Feeds may be down for so long before the worker is asked whether they moved.
const FIRST_DOUBT: Duration = Duration::from_secs(5);

/// A worker to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) worker: WorkerId,
    pub(crate) name: Box<str>,
    /// `http://host:port`.
    pub(crate) url: Box<str>,
}

/// How a worker answers, for the admin page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TargetReport {
    pub(crate) worker: Box<str>,
    /// `asking`: it has not answered yet; `none`: it publishes nothing, or has no page that tells; `found`.
    pub(crate) state: &'static str,
    pub(crate) feeds: usize,
}

#[derive(Debug)]
struct Known {
    target: Target,
    /// None until it has answered.
    sources: Option<Vec<EventSource>>,
    /// When to ask next; none while its feeds are well.
    due: Option<Instant>,
    pause: Duration,
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
                due: before.map_or(Some(now), |known| known.due),
                pause: before.map_or(FIRST_PAUSE, |known| known.pause),
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
            match (down.contains(&known.target.worker), known.due) {
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
    pub(super) fn learn(&mut self, worker: WorkerId, answer: Answer, now: Instant) -> bool {
        let Some(known) = self.0.iter_mut().find(|known| known.target.worker == worker) else {
            return false;
        };
        let name = &known.target.name;
        let told = match answer {
            Answer::Sources(sources) => sources,
            Answer::Absent => Vec::new(),
            Answer::Failed(error) => {
                debug!(worker = %name, error = chain(&error), "failed to ask for KV event feeds");
                // Feeds that were found stay while nobody tells of others: they may come back.
                known.ask_later(LAST_PAUSE, now);
                return false;
            }
        };
        let is_new = known.sources.as_ref() != Some(&told);
        if is_new {
            match told.len() {
                0 => info!(worker = %name, "no KV events found: policies see no cached prefixes there"),
                feeds => info!(worker = %name, feeds, "found KV event feeds"),
            }
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
            sources.map(|source| FeedSpec {
                worker: known.target.worker,
                name: known.target.name.clone(),
                endpoint: Endpoint::Connect(source.endpoint.clone()),
                replay: source.replay.clone(),
                topic: source.topic.clone(),
                rank: Some(DpRank(source.rank)),
            })
        })
    }

    pub(super) fn report(&self) -> Vec<TargetReport> {
        let report = |known: &Known| TargetReport {
            worker: known.target.name.clone(),
            state: match known.sources.as_deref() {
                None => "asking",
                Some([]) => "none",
                Some(_) => "found",
            },
            feeds: known.sources.as_ref().map_or(0, Vec::len),
        };
        self.0.iter().map(report).collect()
    }
}

impl Known {
    fn has_feeds(&self) -> bool {
        self.sources.as_ref().is_some_and(|sources| !sources.is_empty())
    }

    /// After a pause, and the next time after a longer one.
    fn ask_later(&mut self, longest: Duration, now: Instant) {
        self.due = Some(now + self.pause);
        self.pause = (self.pause * 2).min(longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::ask::AskError;

    const WORKER: WorkerId = WorkerId(7);

    struct Story {
        targets: Targets,
        now: Instant,
    }

    impl Story {
        fn new() -> Self {
            let now = Instant::now();
            let target = Target {
                worker: WORKER,
                name: "w".into(),
                url: "http://gpu-1:8000".into(),
            };
            let targets = Targets::default().next(vec![target], now);
            Self { targets, now }
        }

        /// Seconds until the worker is asked next.
        #[track_caller]
        fn asked_after(&mut self, seconds: u64) {
            if let Some(before) = seconds.checked_sub(1) {
                let before = self.now + Duration::from_secs(before);
                assert!(self.targets.due(before).is_empty(), "asked too early");
            }
            self.now += Duration::from_secs(seconds);
            assert_eq!(self.targets.due(self.now).len(), 1, "not asked");
        }

        fn learn(&mut self, answer: Answer) -> bool {
            self.targets.learn(WORKER, answer, self.now)
        }

        fn found(&mut self, port: u16) -> bool {
            self.learn(Answer::Sources(vec![source(0, port), source(1, port + 1)]))
        }

        fn feeds_are(&mut self, state: FeedState) {
            self.targets
                .watch([(WORKER, FeedState::Live), (WORKER, state)], self.now);
        }
    }

    fn source(rank: u16, port: u16) -> EventSource {
        EventSource {
            rank,
            endpoint: format!("tcp://gpu-1:{port}"),
            replay: None,
            topic: "kv".to_owned(),
        }
    }

    fn failed() -> Answer {
        Answer::Failed(AskError::Timeout("/kv_event_sources"))
    }

    #[test]
    fn a_worker_that_does_not_answer_is_asked_ever_more_rarely() {
        let mut story = Story::new();
        for pause in [0, 1, 2, 4, 8, 16, 32, 60, 60] {
            story.asked_after(pause);
            assert!(!story.learn(failed()));
        }
        assert_eq!(story.targets.report()[0].state, "asking");
    }

    #[test]
    fn a_worker_without_events_is_asked_every_few_minutes() {
        let mut story = Story::new();
        for pause in [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            story.asked_after(pause);
            assert!(!story.learn(Answer::Absent));
        }
        assert_eq!(story.targets.report()[0].state, "none");
    }

    #[test]
    fn found_feeds_are_followed_rank_by_rank_and_not_asked_for_again_while_they_are_well() {
        let mut story = Story::new();
        story.asked_after(0);
        assert!(story.found(5557));
        let specs: Vec<_> = story.targets.specs().collect();
        assert_eq!(specs.len(), 2);
        assert_eq!(specs[1].rank, Some(DpRank(1)));
        assert_eq!(
            specs[1].endpoint,
            Endpoint::Connect("tcp://gpu-1:5558".to_owned())
        );
        story.feeds_are(FeedState::Live);
        assert!(story.targets.due(story.now + LAST_PAUSE_WITHOUT).is_empty());
    }

    #[test]
    fn a_worker_whose_feeds_stay_down_is_asked_whether_they_moved() {
        let mut story = Story::new();
        story.asked_after(0);
        story.found(5557);
        story.feeds_are(FeedState::Connecting);
        story.asked_after(5);
        assert!(!story.found(5557), "the same again");
        story.feeds_are(FeedState::Connecting);
        story.asked_after(5);
        assert!(!story.learn(failed()));
        assert_eq!(story.targets.specs().count(), 2);
        story.asked_after(10);
        assert!(story.found(6557));
        story.feeds_are(FeedState::Live);
        assert!(story.targets.due(story.now + LAST_PAUSE_WITHOUT).is_empty());
    }

    #[test]
    fn a_short_outage_asks_nobody() {
        let mut story = Story::new();
        story.asked_after(0);
        story.found(5557);
        story.feeds_are(FeedState::Connecting);
        story.feeds_are(FeedState::Rebuilding);
        assert!(story.targets.due(story.now + LAST_PAUSE).is_empty());
    }

    #[test]
    fn a_worker_that_stops_publishing_loses_its_feeds() {
        let mut story = Story::new();
        story.asked_after(0);
        story.found(5557);
        assert!(story.learn(Answer::Sources(Vec::new())));
        assert_eq!(story.targets.specs().count(), 0);
    }

    #[test]
    fn what_a_worker_told_outlives_a_reload() {
        let mut story = Story::new();
        story.asked_after(0);
        story.found(5557);
        let same = story.targets.0[0].target.clone();
        let other = Target {
            worker: WorkerId(8),
            ..same.clone()
        };
        let next = story.targets.next(vec![other, same], story.now);
        assert_eq!(next.specs().count(), 2);
        assert_eq!(story.targets.next(Vec::new(), story.now).specs().count(), 0);
    }
}
