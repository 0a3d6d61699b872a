//! Sampler: reads the numbers of the fleet each second, and makes the events of the viewers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admin_views::{
    CacheState, ChangeCause, ChangeKind, FeedView, FleetRates, FleetView, HealthChange, HealthWatch,
    NewChange, RateMeter, RequestTail, StoppedCanary, TAIL_REACH, TAIL_ROWS, Topic, TrialWatch,
};
use bytes::Bytes;
use decision_log::Recorder;
use kv_feed::KvFeeds;
use kv_index::SharedPrefixIndex;
use proxy::{PoolSample, SnapshotCell};
use routing::WorkerId;
use serde::Serialize;
use serde_json::json;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::change_log::{ChangeLog, unix_seconds};
use crate::hub::{LiveHub, LiveUpdate, TopicEvents};
use crate::worker_feed;

/// Interval of samples.
const STEP: Duration = Duration::from_secs(1);
/// Least time between two updates.
const PAUSE: Duration = Duration::from_millis(200);
/// Step of the shown silence of a feed: with each second of it, every worker would be new to the viewers.
const SILENCE_STEP: u64 = 5;

/// Sources of the numbers.
#[derive(Debug, Clone)]
pub struct LiveSources {
    /// Active snapshot.
    pub cell: Arc<SnapshotCell>,
    /// Event feeds of the workers.
    pub feeds: Arc<KvFeeds>,
    /// Prefix index.
    pub index: Arc<SharedPrefixIndex>,
    /// Recorded requests.
    pub recorder: Arc<Recorder>,
    /// Log of changes.
    pub changes: ChangeLog,
}

/// The task.
#[derive(Debug)]
pub struct Sampler {
    hub: Arc<LiveHub>,
    sources: LiveSources,
    started: Instant,
    /// Time of the last update.
    published: Instant,
    meter: RateMeter,
    rates: FleetRates,
    health: HealthWatch,
    trials: TrialWatch,
    /// State that the viewers have. `None` without viewers.
    shown: Option<Shown>,
}

/// State of the last update.
#[derive(Debug, Default)]
struct Shown {
    fleet: FleetView,
    tail: RequestTail,
    /// Number of the last change.
    change: u64,
}

impl Sampler {
    /// Creates the sampler of a hub.
    #[must_use]
    pub fn new(hub: Arc<LiveHub>, sources: LiveSources) -> Self {
        Self {
            hub,
            sources,
            started: Instant::now(),
            published: Instant::now(),
            meter: RateMeter::default(),
            rates: FleetRates::default(),
            health: HealthWatch::default(),
            trials: TrialWatch::default(),
            shown: None,
        }
    }

    /// Samples until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let hub = Arc::clone(&self.hub);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => self.sample(),
                // A new viewer need not wait for a second, but viewers that come and go cost no more than others.
                () = hub.newcomers.notified(), if self.published.elapsed() >= PAUSE => {
                    if hub.needs_full() {
                        let pools = self.sources.cell.load().sample();
                        self.publish(&pools);
                    }
                }
            }
        }
    }

    /// Takes the sample of a second. Updates the viewers, if there are any.
    pub fn sample(&mut self) {
        let pools = self.sources.cell.load().sample();
        self.rates = self.meter.measure(self.started.elapsed(), &pools);
        self.hub.history().add(unix_seconds(), &pools, &self.rates);
        for change in self.health.look(&pools) {
            self.note_health(change);
        }
        let trials = self.sources.cell.load().trials();
        for StoppedCanary { policy, route } in self.trials.look(&trials) {
            let summary = format!("the canary `{policy}` of the route {route} was stopped");
            self.note(ChangeKind::CanaryStopped, ChangeCause::Trial, summary);
        }
        self.publish(&pools);
    }

    /// Returns `true` if the last sample was sent to viewers.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    fn note(&self, kind: ChangeKind, cause: ChangeCause, summary: String) {
        let generation = self.sources.cell.load().generation().0;
        let change = NewChange::applied(kind, cause, summary);
        self.sources.changes.note(change.in_generation(generation));
    }

    fn note_health(
        &self,
        HealthChange {
            worker,
            is_out,
            reason,
        }: HealthChange,
    ) {
        let (kind, event) = match is_out {
            true => (ChangeKind::WorkerEjected, "is out of service"),
            false => (ChangeKind::WorkerReturned, "is back in service"),
        };
        let summary = match reason.filter(|_| is_out) {
            Some(reason) => format!("`{worker}` {event}: {reason}"),
            None => format!("`{worker}` {event}"),
        };
        self.note(kind, ChangeCause::Health, summary);
    }

    /// Makes the events and sends them. Without viewers nothing is made, and it returns `false`.
    fn publish(&mut self, pools: &[PoolSample]) -> bool {
        if !self.hub.is_watched() {
            self.shown = None;
            return false;
        }
        self.published = Instant::now();
        let needs_full = self.hub.take_full_request();
        let before = self.shown.take();
        let (shown, update) = self.update(pools, before, needs_full);
        self.shown = Some(shown);
        // The last viewer may have left meanwhile.
        let _ = self.hub.updates.send(Arc::new(update));
        true
    }

    fn update(&self, pools: &[PoolSample], before: Option<Shown>, needs_full: bool) -> (Shown, LiveUpdate) {
        let LiveSources {
            cell,
            recorder,
            changes,
            ..
        } = &self.sources;
        let (at, generation) = (unix_seconds(), cell.load().generation().0);
        let fleet = FleetView::of(pools, &self.rates, self.cache_states());
        let traces = recorder.latest_traces(TAIL_REACH);
        let mut part = TopicEvents::default();
        let mut shown = before.unwrap_or_default();
        let changed = fleet.since(&shown.fleet, at, generation);
        part.set(Topic::Fleet, event(Topic::Fleet, &changed));
        let rows = shown.tail.look(&traces);
        if !rows.is_empty() {
            part.set(
                Topic::Requests,
                event(Topic::Requests, &json!({ "requests": rows })),
            );
        }
        let newer = changes.since(shown.change);
        if !newer.is_empty() {
            part.set(
                Topic::Changes,
                event(Topic::Changes, &json!({ "changes": newer })),
            );
        }
        let full = needs_full.then(|| {
            let mut full = TopicEvents::default();
            full.set(Topic::Fleet, event(Topic::Fleet, &fleet.full(at, generation)));
            let rows = json!({ "requests": RequestTail::latest(&traces) });
            full.set(Topic::Requests, event(Topic::Requests, &rows));
            let mut latest = changes.latest(TAIL_ROWS);
            latest.reverse();
            full.set(
                Topic::Changes,
                event(Topic::Changes, &json!({ "changes": latest })),
            );
            full
        });
        shown.change = newer.last().map_or(shown.change, |change| change.id);
        shown.fleet = fleet;
        (shown, LiveUpdate { full, part })
    }

    /// Returns the state of the workers' caches.
    fn cache_states(&self) -> impl Fn(WorkerId) -> CacheState {
        let tenths = |time: Duration| (time.as_secs_f64() * 10.0).round() / 10.0;
        let steps = |time: Duration| (time.as_secs() / SILENCE_STEP * SILENCE_STEP) as f64;
        let feeds = self.sources.feeds.status().into_iter();
        let feeds = worker_feed::of_workers(feeds.map(|feed| (feed.worker, feed.into())));
        let index = Arc::clone(&self.sources.index);
        move |worker| CacheState {
            feed: feeds.get(&worker).map(|feed| FeedView {
                state: feed.state.as_str(),
                lag_s: feed.lag.map(tenths),
                silent_for_s: feed.silent_for.map(steps),
            }),
            indexed_blocks: Some(index.held_blocks(worker)),
        }
    }
}

/// Returns an event of the stream. `None` if it cannot be serialized, which no view leads to.
fn event(topic: Topic, data: &impl Serialize) -> Option<Bytes> {
    let data = serde_json::to_string(data).ok()?;
    Some(Bytes::from(format!(
        "event: {}\ndata: {data}\n\n",
        topic.as_str()
    )))
}
