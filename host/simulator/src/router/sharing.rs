//! Exchange of loads between simulated routers: the server's own messages and their merge, over a bus in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use replicas::{
    CostPublisher, LoadPublisher, Peers, PeersSpec, PoolGauges, PoolKey, RouterId, SharedWorker,
    WorkerGauges, WorkerKey,
};
use routing::{HeldSummary, SplitMix64, Worker, WorkerId};

use super::prices::uniform;
use super::sharing_spec::SharingSpec;
use super::single::Router;

/// Interval of full messages and of the ageing of silent routers, in microseconds.
const BEAT_US: u64 = 500_000;
/// Silence after which a router's loads fade, and after which it is removed, in milliseconds: the server's defaults.
const SILENCE: PeersSpec = PeersSpec {
    dead_after_ms: 1_500,
    forget_after_ms: 10_000,
};
/// Milliseconds between the clocks of two routers, so that no result depends on equal clocks.
const CLOCK_OFFSET_MS: u64 = 86_400_000;
/// One in so many microseconds by which every second clock is fast.
const CLOCK_DRIFT: u64 = 10_000;
/// Pool of all simulated workers.
const POOL: &str = "main";

/// Workers at which other routers freed capacity, as a router has just learned.
#[derive(Debug)]
pub(crate) struct FreedElsewhere {
    /// The router.
    pub(crate) router: usize,
    /// The workers.
    pub(crate) workers: Vec<WorkerId>,
}

/// The bus, and each router's end of it.
#[derive(Debug)]
pub(super) struct Sharing {
    spec: SharingSpec,
    ends: Vec<BusEnd>,
    due: BinaryHeap<Reverse<(u64, u64, BusEvent)>>,
    /// Messages on the way.
    payloads: std::collections::HashMap<u64, Arc<[u8]>>,
    events: u64,
    seed: u64,
}

/// One router's end of the bus.
#[derive(Debug)]
struct BusEnd {
    publisher: LoadPublisher,
    costs: CostPublisher,
    peers: Peers,
    /// Set while a message is to be sent.
    is_due: bool,
    /// Set once the router is dead: it sends and receives nothing.
    is_dead: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BusEvent {
    /// A router publishes what changed.
    Publish(usize),
    /// A router publishes, and ages the loads of the others.
    Beat(usize),
    /// A message with loads arrives at a router.
    Arrive(usize),
    /// A message with samples of costs arrives at a router.
    ArriveCosts(usize),
}

impl Sharing {
    /// Returns the bus of these routers.
    pub(super) fn new(spec: SharingSpec, routers: &[Router], seed: u64) -> Self {
        let ends = (1..).zip(routers).map(|(id, router)| {
            let id = RouterId(id);
            let workers: Vec<SharedWorker> = shared_workers(router).collect();
            let mut publisher = LoadPublisher::new(id);
            publisher.set_workers(workers.iter().map(|worker| worker.key));
            let mut peers = Peers::new(id, SILENCE);
            peers.set_workers(workers);
            BusEnd {
                publisher,
                costs: CostPublisher::new(id),
                peers,
                is_due: false,
                is_dead: false,
            }
        });
        let mut sharing = Self {
            ends: ends.collect(),
            spec,
            due: BinaryHeap::new(),
            payloads: std::collections::HashMap::new(),
            events: 0,
            seed,
        };
        for router in 0..routers.len() {
            sharing.add(sharing.phase_us(router), BusEvent::Beat(router));
        }
        sharing
    }

    /// Returns the time of the next event.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at_us, _, _))| *at_us)
    }

    /// Notes that a router's loads may have changed.
    pub(super) fn touch(&mut self, now_us: u64, router: usize) {
        if std::mem::replace(&mut self.ends[router].is_due, true) {
            return;
        }
        let (every_us, phase_us) = (self.spec.every_us.max(1), self.phase_us(router));
        let periods = now_us.saturating_sub(phase_us) / every_us + 1;
        self.add(phase_us + periods * every_us, BusEvent::Publish(router));
    }

    /// Records the death of a router.
    pub(super) fn die(&mut self, router: usize) {
        self.ends[router].is_dead = true;
    }

    /// Does the next event.
    pub(super) fn step(&mut self, routers: &mut [Router]) -> Option<FreedElsewhere> {
        let Reverse((now_us, number, event)) = self.due.pop()?;
        match event {
            BusEvent::Publish(router) => {
                self.publish(now_us, router, &routers[router]);
                None
            }
            BusEvent::Beat(router) => {
                self.add(now_us + BEAT_US, event);
                self.publish(now_us, router, &routers[router]);
                self.publish_costs(now_us, router, &routers[router]);
                self.ends[router].peers.tick(clock_ms(now_us, router));
                self.learned(router, &mut routers[router])
            }
            BusEvent::Arrive(router) => {
                let payload = self.payloads.remove(&number)?;
                if self.is_cut(now_us, router) {
                    return None;
                }
                let read = self.ends[router]
                    .peers
                    .receive(clock_ms(now_us, router), &payload);
                debug_assert_eq!(read, Ok(()), "the routers have one version");
                self.learned(router, &mut routers[router])
            }
            BusEvent::ArriveCosts(router) => {
                let payload = self.payloads.remove(&number)?;
                if !self.is_cut(now_us, router) {
                    let read = self.ends[router].peers.receive_costs(&payload);
                    debug_assert_eq!(read, Ok(()), "the routers have one version");
                }
                None
            }
        }
    }

    /// Publishes the newest samples of a router's costs.
    fn publish_costs(&mut self, now_us: u64, router: usize, from: &Router) {
        if !self.spec.costs {
            return;
        }
        let workers = from.state.fleet.workers().iter();
        let keyed = workers.map(|worker| (worker_key(worker), worker.load().cost()));
        if let Some(message) = self.ends[router].costs.message(keyed) {
            self.send(now_us, router, message.encode().into(), BusEvent::ArriveCosts);
        }
    }

    /// Passes on a router's records of the others' queues and freed capacity.
    fn learned(&mut self, at: usize, router: &mut Router) -> Option<FreedElsewhere> {
        let peers = &mut self.ends[at].peers;
        let queued = peers.pool(PoolKey::of(POOL)).queued;
        router.state.held_elsewhere = usize::try_from(queued).unwrap_or(usize::MAX);
        let workers = peers.take_freed();
        (!workers.is_empty()).then_some(FreedElsewhere { router: at, workers })
    }

    fn publish(&mut self, now_us: u64, router: usize, from: &Router) {
        let shares_queue = self.spec.queue;
        let end = &mut self.ends[router];
        end.is_due = false;
        let gauges = worker_gauges(from, shares_queue);
        let pool = PoolGauges {
            queued: if shares_queue { from.held() as u64 } else { 0 },
            ..PoolGauges::empty(PoolKey::of(POOL))
        };
        let message = end.publisher.message(
            clock_ms(now_us, router),
            gauges.into_iter(),
            std::iter::once(pool),
        );
        if let Some(message) = message {
            self.send(now_us, router, message.encode().into(), BusEvent::Arrive);
        }
    }

    /// Sends a message to the other routers.
    fn send(&mut self, now_us: u64, router: usize, payload: Arc<[u8]>, arrives: impl Fn(usize) -> BusEvent) {
        if self.is_cut(now_us, router) {
            return;
        }
        let at_us = now_us + self.spec.lag_us;
        for to in (0..self.ends.len()).filter(|to| *to != router) {
            let number = self.add(at_us, arrives(to));
            if self.is_lost(number) {
                continue;
            }
            self.payloads.insert(number, Arc::clone(&payload));
        }
    }

    fn is_cut(&self, now_us: u64, router: usize) -> bool {
        let is_dead = self.ends[router].is_dead;
        is_dead
            || self.spec.cuts.iter().any(|cut| {
                cut.router.is_none_or(|at| at == router) && (cut.from_us..cut.until_us).contains(&now_us)
            })
    }

    fn is_lost(&self, number: u64) -> bool {
        let mut random = SplitMix64::of_decision(self.seed ^ number.rotate_left(32), u32::MAX - 1);
        uniform(&mut random) < self.spec.loss
    }

    /// Returns the offset of a router's periods: routers do not publish at the same moments.
    fn phase_us(&self, router: usize) -> u64 {
        self.spec.every_us * router as u64 / self.ends.len().max(1) as u64
    }

    fn add(&mut self, at_us: u64, event: BusEvent) -> u64 {
        self.events += 1;
        self.due.push(Reverse((at_us, self.events, event)));
        self.events
    }
}

/// Returns a router's own clock in milliseconds.
fn clock_ms(now_us: u64, router: usize) -> u64 {
    let drift_us = if router % 2 == 1 { now_us / CLOCK_DRIFT } else { 0 };
    (now_us + drift_us) / 1_000 + CLOCK_OFFSET_MS * router as u64
}

fn worker_key(worker: &Worker) -> WorkerKey {
    WorkerKey::of(POOL, &worker.spec().url, None)
}

fn shared_workers(router: &Router) -> impl Iterator<Item = SharedWorker> {
    router.state.fleet.workers().iter().map(|worker| SharedWorker {
        key: worker_key(worker),
        id: worker.id(),
        load: Arc::clone(worker.load()),
    })
}

/// Returns a router's own gauges of all workers.
fn worker_gauges(router: &Router, with_queue: bool) -> Vec<WorkerGauges> {
    let workers = router.state.fleet.workers();
    let mut held: Vec<Option<HeldSummary>> = vec![None; workers.len()];
    if with_queue {
        router.state.summarize_waiters(|worker, summary| {
            if let Some(slot) = held.get_mut(worker.0 as usize) {
                *slot = Some(*summary);
            }
        });
    }
    let gauges = workers.iter().zip(&held);
    gauges
        .map(|(worker, held)| WorkerGauges::new(worker.load().own(), held.as_ref()))
        .collect()
}
