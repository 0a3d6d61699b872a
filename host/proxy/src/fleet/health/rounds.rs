//! Query schedule for workers, beside requests. Each worker is scheduled by itself, so that a hung one delays no other.
//!
//! A worker's first health check runs at once. A pending worker is checked again after a short pause. The pause doubles
//! each time up to the interval of its probes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use routing::{Generation, Worker, WorkerId};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::query_settings::{QueryKind, QuerySettings};
use super::service_watch::ServiceWatch;
use super::{ProbeSpec, probe, scrape};
use crate::fleet::catalog;
use crate::fleet::pool::{Member, WorkerPool, alike};
use crate::fleet::source::{ActiveFleet, FleetSource};
use crate::tasks;

/// Interval at which due queries are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval at which kept connections are trimmed.
const TRIM_EVERY: Duration = Duration::from_secs(10);
/// Most queries under way at a time. Workers that are due beyond that are queried at the next look.
const MOST_AT_ONCE: usize = 256;
/// Factor by which a page without useful content is queried more rarely.
const RARELY: u32 = 30;

/// First pause before a pending worker is checked again.
const FIRST_RETRY: Duration = Duration::from_millis(250);

/// Interval of a query.
#[derive(Debug, Clone, Copy)]
struct QueryPace {
    interval: Duration,
    /// `true` while the worker was never reached.
    is_pending: bool,
}

impl QueryPace {
    fn every(interval: Duration) -> Self {
        Self {
            interval,
            is_pending: false,
        }
    }

    /// Returns the interval of a worker's health checks, depending on whether it was reached. `None` where it needs
    /// none any more.
    fn of_checks(probe: Option<&ProbeSpec>, is_pending: bool) -> Option<Self> {
        let interval = match probe {
            Some(probe) => probe.interval,
            None if is_pending => ProbeSpec::default().interval,
            None => return None,
        };
        Some(Self { interval, is_pending })
    }

    /// Returns the pause after so many queries.
    fn pause(self, queries: u64) -> Duration {
        if !self.is_pending {
            return self.interval;
        }
        let doublings = queries.saturating_sub(1).min(16) as u32;
        (FIRST_RETRY * 2_u32.pow(doublings)).min(self.interval)
    }
}

/// Schedule of one query to one worker.
#[derive(Debug)]
struct QuerySchedule {
    due: Instant,
    queries: u64,
    under_way: Arc<AtomicBool>,
    /// `true` while the last answer was useful.
    of_use: Arc<AtomicBool>,
}

/// Queries the workers of the active fleet whenever they are due, until `stop`. `tracker` counts the queries.
pub(crate) async fn keep_watch(source: Arc<impl FleetSource>, tracker: TaskTracker, stop: CancellationToken) {
    let mut rounds = Rounds::default();
    let spawner = QuerySpawner {
        tracker,
        stop: stop.clone(),
    };
    loop {
        rounds.query_due(&*source, &spawner, Instant::now());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// Spawns the queries of workers.
#[derive(Debug)]
struct QuerySpawner {
    tracker: TaskTracker,
    /// Ends the queries under way.
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct Rounds {
    /// Generation of the configuration that the other fields are for.
    generation: Option<Generation>,
    /// Members of each pool by their URL: the ranks behind one URL report on one page.
    by_url: Vec<Vec<Arc<[usize]>>>,
    /// Settings of each pool's queries by its name.
    settings: HashMap<Box<str>, QuerySettings>,
    /// Workers that no pool queries for their load.
    unscraped: Vec<Arc<Worker>>,
    turns: QuerySchedules,
    service: ServiceWatch,
    trimmed: Option<Instant>,
}

#[derive(Debug, Default)]
struct QuerySchedules {
    turns: HashMap<(WorkerId, QueryKind), QuerySchedule>,
    under_way: Arc<AtomicUsize>,
}

impl Rounds {
    fn query_due(&mut self, source: &impl FleetSource, spawner: &QuerySpawner, now: Instant) {
        let fleet = source.active();
        if self.generation != Some(fleet.generation) {
            self.follow(&fleet);
        }
        for (pool, by_url) in fleet.pools.iter().zip(&self.by_url) {
            for (at, member) in pool.members.iter().enumerate() {
                let pace =
                    QueryPace::of_checks(pool.checks.health.probe.as_ref(), member.link.health.is_pending());
                let Some(pace) = pace else { continue };
                if let Some(running) = self.turns.is_due(member, QueryKind::Health, pace, now) {
                    spawner.query(pool, &Arc::from([at]), running);
                }
            }
            let load = pool
                .checks
                .scrape
                .as_ref()
                .map(|spec| (QueryKind::Load, spec.interval));
            let models = pool.model_list.as_ref();
            let models = models.map(|spec| (QueryKind::Models, spec.interval));
            for (kind, interval) in load.into_iter().chain(models) {
                for members in by_url {
                    let first = &pool.members[members[0]];
                    let pace = QueryPace::every(interval);
                    if let Some(running) = self.turns.is_due(first, kind, pace, now) {
                        spawner.query(pool, members, running);
                    }
                }
            }
            // A list that was learned while this pool was built is only in the one before it.
            pool.renew_catalog();
        }
        self.forget_old_loads();
        self.service.look(&fleet, source);
        self.trim(&fleet, now);
    }

    /// Forgets the load reports of workers whose load is not queried any more, as after a start. A query that began
    /// before may still report once, so this is repeated in each round.
    fn forget_old_loads(&self) {
        for worker in &self.unscraped {
            if worker.load().engine().is_some() {
                worker.load().forget_engine_report();
            }
        }
    }

    /// Follows a new configuration, whose fleet may be another one. The queries of a pool with other settings, or
    /// with a new name, are due as those of a new worker, however rare the old ones were. A worker that moves between
    /// two pools that both existed keeps its schedule, unless its new pool has changed, too.
    fn follow(&mut self, fleet: &ActiveFleet) {
        self.generation = Some(fleet.generation);
        let settings = fleet
            .pools
            .iter()
            .map(|pool| (pool.name.clone(), QuerySettings::of(pool)));
        let before = std::mem::replace(&mut self.settings, settings.collect());
        let mut changed: HashSet<(WorkerId, QueryKind)> = HashSet::new();
        let (mut workers, mut scraped) = (HashMap::new(), HashSet::new());
        for pool in &fleet.pools {
            let kinds = match before.get(&pool.name) {
                Some(before) => self.settings[&pool.name].changed_from(before),
                None => QueryKind::ALL.to_vec(),
            };
            for member in &pool.members {
                let id = member.worker.id();
                workers.insert(id, &member.worker);
                changed.extend(kinds.iter().map(|kind| (id, *kind)));
                if pool.checks.scrape.is_some() {
                    scraped.insert(id);
                }
            }
        }
        let turns = &mut self.turns.turns;
        turns.retain(|turn, _| workers.contains_key(&turn.0) && !changed.contains(turn));
        let unscraped = workers
            .into_values()
            .filter(|worker| !scraped.contains(&worker.id()));
        self.unscraped = unscraped.cloned().collect();
        let urls = |pool: &Arc<WorkerPool>| {
            let members = pool.members.iter();
            alike(members.map(|member| &*member.worker.spec().url))
        };
        self.by_url = fleet.pools.iter().map(urls).collect();
    }

    /// Closes idle connections that no request will use again.
    fn trim(&mut self, fleet: &ActiveFleet, now: Instant) {
        let last = *self.trimmed.get_or_insert(now);
        if now.duration_since(last) < TRIM_EVERY {
            return;
        }
        self.trimmed = Some(now);
        for member in fleet.members() {
            member.link.upstream.trim(now);
            if let Some(server) = &member.bootstrap {
                server.trim(now);
            }
        }
    }
}

impl QuerySchedules {
    /// Returns the query if it is due now, and schedules the next one.
    fn is_due(
        &mut self,
        member: &Member,
        kind: QueryKind,
        pace: QueryPace,
        now: Instant,
    ) -> Option<RunningQuery> {
        let (id, interval) = (member.worker.id(), pace.interval);
        let turn = self.turns.entry((id, kind)).or_insert_with(|| QuerySchedule {
            due: match kind {
                // Until lists are known, requests go to workers that may not serve their model.
                QueryKind::Health | QueryKind::Models => now,
                // Queries to the workers of a fleet that has just started are spread over the interval.
                QueryKind::Load => now + interval.mul_f64(spread(id, 0)),
            },
            queries: 0,
            under_way: Arc::default(),
            of_use: Arc::new(AtomicBool::new(true)),
        });
        let of_use = turn.of_use.load(Ordering::Relaxed);
        let rarity = if of_use { 1 } else { RARELY };
        // A shorter interval counts from now on.
        turn.due = turn.due.min(now + interval.mul_f64(1.1) * rarity);
        let is_free = !turn.under_way.load(Ordering::Relaxed);
        let has_room = self.under_way.load(Ordering::Relaxed) < MOST_AT_ONCE;
        if turn.due > now || !is_free || !has_room {
            return None;
        }
        turn.queries += 1;
        let pause = pace
            .pause(turn.queries)
            .mul_f64(0.9 + 0.2 * spread(id, turn.queries));
        let pause = pause * rarity;
        turn.due = now + pause;
        if kind == QueryKind::Health {
            member.link.plan_check(pause);
        }
        Some(RunningQuery::begin(kind, turn, &self.under_way))
    }
}

/// Query that is under way until dropped.
#[derive(Debug)]
struct RunningQuery {
    kind: QueryKind,
    under_way: Arc<AtomicBool>,
    of_use: Arc<AtomicBool>,
    all: Arc<AtomicUsize>,
}

impl RunningQuery {
    fn begin(kind: QueryKind, turn: &QuerySchedule, all: &Arc<AtomicUsize>) -> Self {
        turn.under_way.store(true, Ordering::Relaxed);
        all.fetch_add(1, Ordering::Relaxed);
        Self {
            kind,
            under_way: Arc::clone(&turn.under_way),
            of_use: Arc::clone(&turn.of_use),
            all: Arc::clone(all),
        }
    }
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        self.under_way.store(false, Ordering::Relaxed);
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

impl QuerySpawner {
    /// Queries the URL of these members of the pool, of which there is at least one.
    fn query(&self, pool: &Arc<WorkerPool>, members: &Arc<[usize]>, running: RunningQuery) {
        let (pool, members, stop) = (Arc::clone(pool), Arc::clone(members), self.stop.clone());
        let name = match running.kind {
            QueryKind::Health => "probe",
            QueryKind::Load => "scrape",
            QueryKind::Models => "models",
        };
        tasks::spawn(&self.tracker, name, async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = send(&pool, &members, &running) => {}
            }
        });
    }
}

/// Sends one query and applies its answer.
async fn send(pool: &Arc<WorkerPool>, members: &Arc<[usize]>, running: &RunningQuery) {
    match running.kind {
        QueryKind::Health => {
            let member = &pool.members[members[0]];
            match &pool.checks.health.probe {
                Some(spec) => probe::probe(member, spec).await,
                None => probe::connect(member).await,
            }
        }
        QueryKind::Load => {
            if let Some(spec) = &pool.checks.scrape {
                let members: Vec<&Member> = members.iter().map(|at| &pool.members[*at]).collect();
                let of_use = scrape::scrape(&members, spec, &pool.authorization).await;
                running.of_use.store(of_use, Ordering::Relaxed);
            }
        }
        QueryKind::Models => {
            if let Some(spec) = &pool.model_list {
                let of_use = catalog::refresh(pool, members, spec).await;
                running.of_use.store(of_use, Ordering::Relaxed);
            }
        }
    }
}

/// Returns a number from 0 up to 1 that differs from worker to worker and from time to time.
fn spread(id: WorkerId, time: u64) -> f64 {
    let mixed = (u64::from(id.0) + 1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(time.wrapping_mul(0xD1B5_4A32_D192_ED03));
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranks_behind_one_url_are_queried_once() {
        let groups = alike(["a", "b", "a", "c", "b", "a"].into_iter());
        let groups: Vec<&[usize]> = groups.iter().map(|group| &**group).collect();
        assert_eq!(groups, [&[0, 2, 5][..], &[1, 4], &[3]]);
    }

    #[test]
    fn a_pending_worker_is_checked_again_soon_and_then_at_the_interval() {
        let pauses = |interval_ms, is_pending| {
            let pace = QueryPace {
                interval: Duration::from_millis(interval_ms),
                is_pending,
            };
            [1, 2, 3, 4, 5, 6, 1_000].map(|queries| pace.pause(queries).as_millis())
        };
        assert_eq!(pauses(5_000, true), [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        assert_eq!(pauses(100, true), [100; 7]);
        assert_eq!(pauses(5_000, false), [5_000; 7]);
    }

    #[test]
    fn without_probes_only_pending_workers_are_checked() {
        let probe = ProbeSpec::default();
        assert!(QueryPace::of_checks(None, false).is_none());
        assert!(QueryPace::of_checks(None, true).is_some());
        assert!(QueryPace::of_checks(Some(&probe), false).is_some());
    }

    #[test]
    fn turns_are_spread_evenly_over_workers_and_over_time() {
        let mean = |numbers: Vec<f64>| numbers.iter().sum::<f64>() / numbers.len() as f64;
        let over_workers = (0..100).map(|id| spread(WorkerId(id), 0)).collect();
        let over_time = (0..100).map(|time| spread(WorkerId(3), time)).collect();
        assert!((mean(over_workers) - 0.5).abs() < 0.05);
        assert!((mean(over_time) - 0.5).abs() < 0.05);
    }
}
