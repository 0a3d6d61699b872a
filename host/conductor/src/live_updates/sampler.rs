//! Sampler: reads the numbers of the fleet each second, and makes the events of the viewers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use admin_views::{
    CacheKnowledge, ChangeCause, ChangeKind, FeedView, FleetRates, FleetView, HealthChange, HealthWatch,
    NewChange, RateMeter, RequestTail, StoppedCanary, TAIL_REACH, TAIL_ROWS, Topic, TrialWatch,
};
use bytes::Bytes;
use decision_log::Recorder;
use kv_feed::{FeedStatus, KvFeeds};
use kv_index::SharedPrefixIndex;
use proxy::{PoolSample, SnapshotCell};
use routing::WorkerId;
use serde::Serialize;
use serde_json::json;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{LiveHub, LiveUpdate, TopicEvents};
use crate::change_log::{ChangeLog, unix_seconds};

/// Interval of samples.
const STEP: Duration = Duration::from_secs(1);

/// Sources of the numbers.
#[derive(Debug, Clone)]
pub(crate) struct LiveSources {
    pub(crate) cell: Arc<SnapshotCell>,
    pub(crate) feeds: Arc<KvFeeds>,
    pub(crate) index: Arc<SharedPrefixIndex>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) changes: ChangeLog,
}

/// The task.
#[derive(Debug)]
pub(crate) struct Sampler {
    hub: Arc<LiveHub>,
    sources: LiveSources,
    started: Instant,
    meter: RateMeter,
    rates: FleetRates,
    health: HealthWatch,
    trials: TrialWatch,
    /// Knowledge of the viewers. `None` without viewers.
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
    pub(crate) fn new(hub: Arc<LiveHub>, sources: LiveSources) -> Self {
        Self {
            hub,
            sources,
            started: Instant::now(),
            meter: RateMeter::default(),
            rates: FleetRates::default(),
            health: HealthWatch::default(),
            trials: TrialWatch::default(),
            shown: None,
        }
    }

    /// Samples until `stop` is cancelled.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let hub = Arc::clone(&self.hub);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => self.sample(),
                () = hub.newcomers.notified() => {
                    let pools = self.sources.cell.load().sample();
                    self.publish(&pools);
                }
            }
        }
    }

    /// Takes the sample of a second. Updates the viewers, if there are any.
    fn sample(&mut self) {
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
        let wants_full = self.hub.wants_full.swap(false, Ordering::AcqRel);
        let before = self.shown.take();
        let (shown, update) = self.update(pools, before, wants_full);
        self.shown = Some(shown);
        // The last viewer may have left meanwhile.
        let _ = self.hub.updates.send(Arc::new(update));
        true
    }

    fn update(&self, pools: &[PoolSample], before: Option<Shown>, wants_full: bool) -> (Shown, LiveUpdate) {
        let LiveSources {
            cell,
            recorder,
            changes,
            ..
        } = &self.sources;
        let (at, generation) = (unix_seconds(), cell.load().generation().0);
        let fleet = FleetView::of(pools, &self.rates, self.knowledge());
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
        let full = wants_full.then(|| {
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

    /// Returns what is known of the workers' caches.
    fn knowledge(&self) -> impl Fn(WorkerId) -> CacheKnowledge {
        let seconds = |time: Duration| (time.as_secs_f64() * 1e3).round() / 1e3;
        let mut feeds: HashMap<WorkerId, FeedStatus> = HashMap::new();
        for feed in self.sources.feeds.status() {
            feeds.entry(feed.worker).or_insert(feed);
        }
        let index = Arc::clone(&self.sources.index);
        move |worker| CacheKnowledge {
            feed: feeds.get(&worker).map(|feed| FeedView {
                state: feed.state.as_str(),
                lag_s: feed.lag.map(seconds),
                silent_for_s: feed.silent_for.map(seconds),
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

#[cfg(test)]
mod tests {
    use local_files::ConfigSource;
    use prometheus_client::registry::Registry;
    use proxy::ProxyMetrics;
    use runtime_overrides::Overlays;

    use super::*;
    use crate::app::Caches;
    use crate::reload::{ActiveConfig, Planner, Steps, read};

    const CONFIG: &str =
        "[[pools.a.workers]]\nurl = \"http://a:1\"\n[[routes]]\npool = \"a\"\npolicy = \"round-robin\"\n";

    /// Returns the sampler of a router without pools.
    fn sampler() -> Sampler {
        let source = ConfigSource::Text(CONFIG.to_owned());
        let config = read(&source, CONFIG).expect("valid").config;
        let idle = ActiveConfig::idle(&config, Overlays::default());
        let mut registry = Registry::default();
        let metrics = ProxyMetrics::new(&mut registry);
        let caches = Caches::start(&config, &mut registry).unwrap();
        let recorder = Recorder::new(&mut registry);
        let planner = Planner {
            steps: &Steps::default(),
            source: &source,
            metrics: &metrics,
            recorder: &recorder,
            exporter: &trace_export::TraceExporter::new(&mut registry),
            discovery: &caches.plane.discovery,
        };
        let cell = SnapshotCell::new(planner.plan_idle(&idle).unwrap(), &metrics);
        let sources = LiveSources {
            cell: Arc::new(cell),
            feeds: Arc::clone(&caches.plane.feeds),
            index: Arc::clone(&caches.plane.index),
            recorder,
            changes: ChangeLog::default(),
        };
        Sampler::new(LiveHub::new(CancellationToken::new()), sources)
    }

    #[test]
    fn without_viewers_a_second_is_kept_and_no_event_is_made() {
        let mut sampler = sampler();
        sampler.sample();
        assert!(!sampler.publish(&[]) && sampler.shown.is_none());
        let page = serde_json::to_value(sampler.hub.history().page()).unwrap();
        assert_eq!(page["at"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_new_viewer_gets_full_events_and_the_next_update_has_differences_only() {
        let mut sampler = sampler();
        let mut updates = sampler.hub.updates.subscribe();
        sampler.hub.want_full();
        sampler.sample();
        let first = updates.try_recv().unwrap();
        let full = first.full.as_ref().expect("full events");
        assert!(Topic::ALL.into_iter().all(|topic| full.of(topic).is_some()));
        sampler.sample();
        let next = updates.try_recv().unwrap();
        assert!(next.full.is_none() && next.part.of(Topic::Fleet).is_some());
        assert!(next.part.of(Topic::Requests).is_none() && next.part.of(Topic::Changes).is_none());
        drop(updates);
        sampler.sample();
        assert!(sampler.shown.is_none(), "the last viewer has left");
    }
}
