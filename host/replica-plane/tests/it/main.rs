//! Exchanges of several routers over a bus in memory, in paused time.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test's own functions fail by panicking too"
)]

mod agreement;
mod bus;
mod forged;
mod judged;
#[path = "../../../proxy/tests/it/log.rs"]
mod log;
mod objects;
mod pools;
mod start;
mod transfer;
mod usage;
mod warnings;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::registry::Registry;
use replica_plane::{
    ElsewhereNews, Exchange, ExchangeMetrics, ExchangeParts, ExchangeSpec, FleetSource, ReplicaReports,
    SharedPool, UsageGroup,
};
use replicas::{FillState, IndexFill, RouterId, RouterState};
use routing::{BudgetUse, HeldSummary, Worker, WorkerId, WorkerSpec};
use tokio_util::sync::CancellationToken;

use self::bus::Hub;
use self::usage::{LimitGroup, Limits};

/// Router whose exchange runs.
struct Router {
    pool: Arc<Pool>,
    reports: ReplicaReports,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    generation: Arc<AtomicU64>,
    registry: Registry,
}

#[derive(Default)]
struct Pool {
    name: &'static str,
    workers: Mutex<Vec<Arc<Worker>>>,
    held: Mutex<BTreeMap<WorkerId, HeldSummary>>,
    queued_elsewhere: AtomicUsize,
    freed: Mutex<Vec<WorkerId>>,
    budget: Mutex<BudgetUse>,
    budget_elsewhere: Mutex<BudgetUse>,
    /// Requests of the others that it was given, each with the divisor of the limits at that time.
    shown_use: Mutex<Vec<(u64, u32)>>,
    limits: Arc<Mutex<Limits>>,
}

struct Fleet(Vec<Arc<Pool>>, Arc<AtomicU64>);

struct Share(Arc<Pool>);

impl FleetSource for Fleet {
    type Pool = Share;

    fn generation(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }

    fn pools(&self) -> Vec<Share> {
        self.0.iter().cloned().map(Share).collect()
    }

    fn usage_groups(&self) -> Vec<Box<dyn UsageGroup>> {
        vec![Box::new(LimitGroup(Arc::clone(&self.0[0].limits)))]
    }

    fn state(&self) -> RouterState {
        RouterState::Ready
    }

    fn fill(&self) -> IndexFill {
        IndexFill {
            state: FillState::Filled,
            unfilled: 0,
            incomplete: 1,
            from_routers: 2,
        }
    }

    fn config_hash(&self) -> String {
        "c".to_owned()
    }
}

impl SharedPool for Share {
    fn name(&self) -> &str {
        self.0.name
    }

    fn workers(&self) -> Vec<Arc<Worker>> {
        self.0.workers.lock().unwrap().clone()
    }

    fn queued(&self) -> usize {
        self.0
            .held
            .lock()
            .unwrap()
            .values()
            .map(|held| held.requests() as usize)
            .sum()
    }

    fn summarize_waiters(&self, visit: &mut dyn FnMut(WorkerId, &HeldSummary)) {
        self.0
            .held
            .lock()
            .unwrap()
            .iter()
            .for_each(|(worker, held)| visit(*worker, held));
    }

    fn budget(&self) -> BudgetUse {
        *self.0.budget.lock().unwrap()
    }

    fn set_elsewhere(&self, elsewhere: &ElsewhereNews<'_>) {
        let queued = elsewhere.gauges.queued as usize;
        self.0.queued_elsewhere.store(queued, Ordering::Relaxed);
        *self.0.budget_elsewhere.lock().unwrap() = elsewhere.gauges.budget;
        let shown = (
            elsewhere.gauges.budget.requests,
            self.0.limits.lock().unwrap().divisor,
        );
        self.0.shown_use.lock().unwrap().push(shown);
        self.0.freed.lock().unwrap().extend(elsewhere.freed);
    }
}

fn worker(at: u32) -> Arc<Worker> {
    let spec = WorkerSpec::mixed(format!("w{at}"), format!("http://w{at}:1"));
    Arc::new(Worker::new(WorkerId(at), spec))
}

impl Pool {
    fn new(name: &'static str, workers: Vec<Arc<Worker>>) -> Arc<Self> {
        Arc::new(Self {
            name,
            workers: Mutex::new(workers),
            ..Self::default()
        })
    }
}

impl Router {
    fn start(hub: &Hub, router: u64, workers: u32) -> Self {
        let workers = (0..workers).map(worker).collect();
        Self::start_with(hub, router, vec![Pool::new("main", workers)])
    }

    #[expect(clippy::disallowed_methods, reason = "a test ends its tasks with its runtime")]
    fn start_with(hub: &Hub, router: u64, pools: Vec<Arc<Pool>>) -> Self {
        let pool = Arc::clone(&pools[0]);
        let (reports, stop, generation) = (
            ReplicaReports::default(),
            CancellationToken::new(),
            Arc::default(),
        );
        let mut registry = Registry::default();
        let exchange = Exchange::new(ExchangeParts {
            router: RouterId(router),
            spec: ExchangeSpec {
                fleet: "main".to_owned(),
                name: format!("router-{router}"),
                share_every: Duration::from_millis(5),
                dead_after: Duration::from_millis(1_500),
            },
            source: Fleet(pools, Arc::clone(&generation)),
            metrics: Arc::new(ExchangeMetrics::register(&mut registry)),
            reports: reports.clone(),
        });
        let (bus, token) = (hub.join(), stop.clone());
        let task = tokio::spawn(async move {
            exchange.run(bus, token).await;
        });
        Self {
            pool,
            reports,
            stop,
            task,
            generation,
            registry,
        }
    }

    /// Returns the value of a counter.
    fn counter(&self, name: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name));
        values.next().unwrap().trim().parse().unwrap()
    }

    fn worker(&self, at: usize) -> Arc<Worker> {
        Arc::clone(&self.pool.workers.lock().unwrap()[at])
    }

    /// Returns the requests at a worker, of all routers.
    fn requests(&self, at: usize) -> u32 {
        self.worker(at).load().read().requests
    }
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[tokio::test(start_paused = true)]
async fn loads_and_held_requests_reach_the_other_routers_within_two_periods() {
    let hub = Hub::default();
    let (one, two) = (Router::start(&hub, 1, 2), Router::start(&hub, 2, 2));
    pass(300).await;
    let lease = one.worker(1).load().book(1_000, 600);
    let mut held = HeldSummary::default();
    held.add(700, 3.0);
    one.pool.held.lock().unwrap().insert(WorkerId(0), held);
    pass(60).await;
    assert_eq!((two.requests(0), two.requests(1)), (0, 1));
    assert_eq!(two.worker(1).load().read().prefill_tokens, 600);
    assert_eq!(two.pool.queued_elsewhere.load(Ordering::Relaxed), 1);
    assert_eq!(two.worker(0).load().others().first_order(), 3.0);
    drop(lease);
    pass(12).await;
    assert_eq!(two.requests(1), 0);
    assert_eq!(*two.pool.freed.lock().unwrap(), [WorkerId(1)]);
    assert_eq!(
        one.worker(1).load().others().read().requests,
        0,
        "the own ones are not others'"
    );
}

#[tokio::test(start_paused = true)]
async fn a_router_that_ends_counts_no_more_at_once_and_one_that_dies_after_its_silence() {
    let hub = Hub::default();
    let [one, two, three] = [1, 2, 3].map(|router| Router::start(&hub, router, 1));
    let _leases = (one.worker(0).load().book(1, 1), two.worker(0).load().book(1, 1));
    pass(400).await;
    assert_eq!(three.requests(0), 2);
    one.stop.cancel();
    pass(1).await;
    assert_eq!(three.requests(0), 1, "it said goodbye");
    two.task.abort();
    pass(1_000).await;
    assert_eq!(three.requests(0), 1);
    pass(1_000).await;
    assert_eq!(three.requests(0), 0, "no engine confirms its request");
    let report = three.reports.get().unwrap();
    assert_eq!(
        report.others.iter().map(|row| row.state).collect::<Vec<_>>(),
        ["silent"]
    );
    pass(9_000).await;
    assert!(three.reports.get().unwrap().others.is_empty());
}

#[tokio::test(start_paused = true)]
async fn loads_converge_about_a_second_after_messages_are_lost() {
    let hub = Hub::default();
    let (one, two) = (Router::start(&hub, 1, 1), Router::start(&hub, 2, 1));
    pass(300).await;
    hub.lose(true);
    let _lease = one.worker(0).load().book(1, 1);
    pass(500).await;
    assert_eq!(two.requests(0), 0);
    hub.lose(false);
    pass(1_100).await;
    assert_eq!(two.requests(0), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_server_makes_no_phantoms() {
    let hub = Hub::default();
    let (one, two) = (Router::start(&hub, 1, 1), Router::start(&hub, 2, 1));
    pass(300).await;
    let lease = one.worker(0).load().book(1, 1);
    pass(100).await;
    hub.stall(true);
    drop(lease);
    pass(3_000).await;
    assert_eq!(two.requests(0), 0, "silent for longer than its time");
    hub.stall(false);
    pass(20).await;
    assert_eq!(two.requests(0), 0, "late messages are not taken for new ones");
    pass(1_000).await;
    let report = two.reports.get().unwrap();
    assert_eq!((report.others[0].state, two.requests(0)), ("ready", 0));
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_the_loads_of_workers_that_stay() {
    let hub = Hub::default();
    let (one, two) = (Router::start(&hub, 1, 2), Router::start(&hub, 2, 1));
    let _leases = [0, 1].map(|at| one.worker(at).load().book(1, 1));
    pass(800).await;
    assert_eq!(two.requests(0), 1);
    assert_eq!(two.reports.get().unwrap().others[0].unknown_workers, 1);
    assert_eq!(two.reports.get().unwrap().others[0].same_fleet, Some(false));
    two.pool.workers.lock().unwrap().push(worker(1));
    two.generation.fetch_add(1, Ordering::Relaxed);
    pass(600).await;
    assert_eq!((two.requests(0), two.requests(1)), (1, 1));
    let report = two.reports.get().unwrap();
    assert_eq!(
        (report.others[0].same_fleet, report.others[0].unknown_workers),
        (Some(true), 0)
    );
}

#[tokio::test(start_paused = true)]
async fn cost_samples_reach_the_other_routers_about_a_second_later() {
    let hub = Hub::default();
    let (one, two) = (Router::start(&hub, 1, 1), Router::start(&hub, 2, 1));
    pass(1_500).await;
    for round in 0..5_u32 {
        for at in 0..8 {
            let tokens = 100 + 57 * (8 * round + at);
            let ttft = Duration::from_micros(u64::from(100 * tokens));
            one.worker(0).load().book(tokens, tokens).first_token(ttft);
        }
        pass(1_200).await;
    }
    assert!((two.worker(0).load().cost().read().prefill_ms(1_000, 0) - 100.0).abs() < 0.1);
    assert!(
        two.worker(0).load().read().ttft_ewma_ms.is_nan(),
        "its own requests alone"
    );
}
