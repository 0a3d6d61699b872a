//! Task of the exchange.

use std::sync::Arc;
use std::time::Duration;

use replicas::{
    Bus, BusEvent, CostMessage, CostPublisher, FleetHashes, FleetSubject, HelloMessage, LoadMessage,
    LoadPublisher, Peers, PeersSpec, PoolGauges, PoolKey, RouterId, RouterState, SubjectKind, UsageMessage,
    WorkerGauges,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::fleet::SharedFleet;
use crate::metrics::ExchangeMetrics;
use crate::pace::SharePace;
use crate::report::{NewestMessage, ReplicaReport, ReplicaReports, RouterRow};
use crate::source::{ElsewhereNews, FleetSource, SharedPool};
use crate::spec::ExchangeSpec;
use crate::usage::UsageExchange;

/// Interval of hellos, of the ageing of silent routers, and of the check for another configuration.
const BEAT: Duration = Duration::from_millis(250);
/// Received messages after which the queues are notified even if more have come.
const MOST_AT_ONCE: usize = 64;
/// Interval of messages with samples of costs.
const COSTS_EVERY: Duration = Duration::from_secs(1);

/// Parts of an exchange.
#[derive(Debug)]
pub struct ExchangeParts<S> {
    /// Identity of this run.
    pub router: RouterId,
    /// Settings.
    pub spec: ExchangeSpec,
    /// The active fleet.
    pub source: S,
    /// Metrics.
    pub metrics: Arc<ExchangeMetrics>,
    /// Reports for the pages.
    pub reports: ReplicaReports,
}

/// Exchange of one router with the others.
#[derive(Debug)]
pub struct Exchange<S: FleetSource> {
    parts: ExchangeParts<S>,
    started: Instant,
    fleet: SharedFleet<S::Pool>,
    publisher: LoadPublisher,
    costs: CostPublisher,
    peers: Peers,
    usage: UsageExchange,
    slow_at: SlowTimes,
    connection: Option<BusConnection>,
    pace: SharePace,
}

/// Connection to the bus.
#[derive(Debug, Clone, Copy)]
struct BusConnection {
    since: Instant,
    /// Set once another router counted as live during it.
    has_heard: bool,
}

/// Times of the next messages that are less frequent than loads.
#[derive(Debug)]
struct SlowTimes {
    usage: Instant,
    costs: Instant,
}

impl<S: FleetSource> Exchange<S> {
    /// Returns the exchange of a router.
    #[must_use]
    pub fn new(parts: ExchangeParts<S>) -> Self {
        let silence = PeersSpec {
            dead_after_ms: millis(parts.spec.dead_after),
            forget_after_ms: millis(parts.spec.forget_after()),
        };
        Self {
            publisher: LoadPublisher::new(parts.router),
            costs: CostPublisher::new(parts.router),
            peers: Peers::new(parts.router, silence),
            usage: UsageExchange::new(parts.router, parts.spec.succession()),
            slow_at: SlowTimes {
                usage: Instant::now(),
                costs: Instant::now(),
            },
            started: Instant::now(),
            fleet: SharedFleet::default(),
            connection: None,
            pace: SharePace::new(Instant::now()),
            parts,
        }
    }

    /// Exchanges loads until `stop` is cancelled, then sends a goodbye. Returns the bus, whose last messages may wait.
    pub async fn run<B: Bus>(mut self, mut bus: B, stop: CancellationToken) -> B {
        self.beat(&bus);
        let mut beat_at = Instant::now() + BEAT;
        let mut share_at = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(beat_at) => {
                    self.beat(&bus);
                    beat_at = Instant::now() + BEAT;
                }
                () = tokio::time::sleep_until(share_at), if self.connection.is_some() => {
                    self.share(&bus);
                    share_at = Instant::now() + self.pace.pause(self.parts.spec.share_every);
                }
                event = bus.next() => {
                    let was_connected = self.connection.is_some();
                    if self.handle_batch(event, &mut bus).await == Handled::Closed {
                        warn!("the bus between routers has ended; this router serves alone");
                        break;
                    }
                    share_at = share_at.min(Instant::now() + self.pace.pause(self.parts.spec.share_every));
                    if self.connection.is_some() && !was_connected {
                        beat_at = Instant::now();
                    }
                }
            }
        }
        self.publish(&bus, SubjectKind::Goodbye, Vec::new());
        self.forget_others();
        bus
    }

    /// Handles an event, and those that have come besides it. The queues are notified once.
    async fn handle_batch<B: Bus>(&mut self, first: BusEvent, bus: &mut B) -> Handled {
        let (mut handled, mut has_loads) = (self.handle(first), false);
        for _ in 1..MOST_AT_ONCE {
            has_loads |= handled == Handled::Loads;
            if handled == Handled::Closed {
                break;
            }
            handled = tokio::select! {
                biased;
                event = bus.next() => self.handle(event),
                () = std::future::ready(()) => break,
            };
        }
        if has_loads || handled == Handled::Loads {
            self.pass_on_freed();
        }
        handled
    }

    fn handle(&mut self, event: BusEvent) -> Handled {
        let now_ms = self.now_ms();
        match event {
            BusEvent::Connected => {
                info!(fleet = %self.parts.spec.fleet, "the bus between routers is connected");
                let since = Instant::now();
                self.set_connection(Some(BusConnection {
                    since,
                    has_heard: false,
                }));
                self.publisher.resend();
                self.usage.resend();
            }
            BusEvent::Disconnected => {
                warn!(
                    fleet = %self.parts.spec.fleet,
                    "the bus between routers is away: their loads fade, and this router serves with its own and the engines' figures",
                );
                self.set_connection(None);
            }
            BusEvent::Message { subject, payload } => {
                self.parts.metrics.received(payload.len());
                let is_known = self.peers.has(subject.router);
                let handled = self.receive(now_ms, subject, &payload);
                if !is_known && self.peers.has(subject.router) {
                    self.welcome();
                }
                return handled.unwrap_or_else(|| {
                    self.peers.refuse();
                    Handled::Other
                });
            }
            BusEvent::Closed => return Handled::Closed,
        }
        Handled::Other
    }

    /// Makes the next messages repeat all for a new router: until it has the use of the others, it would admit a whole
    /// limit again.
    fn welcome(&mut self) {
        self.publisher.resend();
        self.usage.resend();
        self.slow_at.usage = Instant::now();
        self.pace.changed_at = Instant::now();
    }

    /// Applies a message. Returns `None` if it cannot be read, or names another router than its subject: the server
    /// checks who may publish at a subject.
    fn receive(&mut self, now_ms: u64, subject: FleetSubject, payload: &[u8]) -> Option<Handled> {
        let is_sender = |router: RouterId| router == subject.router;
        let mut handled = Handled::Other;
        match subject.kind {
            SubjectKind::Load => {
                let message = LoadMessage::decode(payload).ok();
                let message = message.filter(|message| is_sender(message.router))?;
                self.peers.apply(now_ms, &message);
                handled = Handled::Loads;
            }
            SubjectKind::Hello => {
                let message = HelloMessage::decode(payload).ok();
                let (router, hello) = message.filter(|(router, _)| is_sender(*router))?;
                self.peers.hello(now_ms, router, hello);
            }
            SubjectKind::Cost => {
                let message = CostMessage::decode(payload).ok();
                let message = message.filter(|message| is_sender(message.router))?;
                self.peers.apply_costs(&message);
            }
            SubjectKind::Usage => {
                let message = UsageMessage::decode(payload).ok();
                let message = message.filter(|message| is_sender(message.router))?;
                self.usage.receive(now_ms, &self.peers, &message);
            }
            SubjectKind::Goodbye => {
                self.peers.goodbye(subject.router);
                handled = Handled::Loads;
            }
        }
        Some(handled)
    }

    /// Notifies the queues of capacity that other routers freed.
    fn pass_on_freed(&mut self) {
        let freed = self.fleet.by_pool(&self.peers.take_freed());
        self.pace.holds_elsewhere = false;
        for (at, pool) in self.fleet.pools.iter().enumerate() {
            let gauges = self.peers.pool(PoolKey::of(pool.name()));
            self.pace.holds_elsewhere |= gauges.queued > 0;
            let freed = freed.of(at);
            pool.set_elsewhere(&ElsewhereNews { gauges, freed });
        }
    }

    /// Does what is due a few times a second.
    fn beat<B: Bus>(&mut self, bus: &B) {
        self.follow_configuration();
        let now_ms = self.now_ms();
        self.peers.tick(now_ms);
        // Where the limits are about to be divided by more, that comes before the use of the others is dropped. Where
        // they become whole, that use is applied first.
        self.note_heard();
        let hears_others = self.hears_others();
        let will_divide_more = self.usage.will_divide_more(&self.peers, hears_others);
        if !will_divide_more {
            self.pass_on_freed();
        }
        let divisor = self.usage.settle(&self.peers, hears_others);
        if will_divide_more {
            self.pass_on_freed();
        }
        self.parts.metrics.divided(divisor);
        let hello = HelloMessage {
            router: self.parts.router.to_string(),
            name: self.parts.spec.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: self.parts.source.state(),
            fleet_hash: self.fleet.hash.clone(),
            config_hash: self.parts.source.config_hash(),
            sent_ms: now_ms,
            fill: Some(self.parts.source.fill()),
        };
        if self.connection.is_some() {
            self.publish(bus, SubjectKind::Hello, hello.encode());
        }
        self.parts.metrics.look(&self.peers, now_ms);
        let report = self.report(&hello, now_ms);
        self.parts.reports.set(report);
    }

    /// Takes over the pools and workers of another configuration.
    fn follow_configuration(&mut self) {
        let generation = self.parts.source.generation();
        if self.fleet.generation == Some(generation) {
            return;
        }
        let next = SharedFleet::new(generation, self.parts.source.pools());
        let stays = |name: &str| next.pools.iter().any(|pool| pool.name() == name);
        // A pool that stays keeps its queue, and the use of the others with it.
        for pool in self.fleet.pools.iter().filter(|pool| !stays(pool.name())) {
            pool.set_elsewhere(&ElsewhereNews {
                gauges: PoolGauges::empty(PoolKey::of(pool.name())),
                freed: &[],
            });
        }
        self.fleet = next;
        self.usage.follow(self.parts.source.usage_groups());
        self.publisher
            .set_workers(self.fleet.workers.iter().map(|worker| worker.key));
        self.peers.set_workers(self.fleet.workers.clone());
    }

    /// Publishes the gauges that changed.
    fn share<B: Bus>(&mut self, bus: &B) {
        let now_ms = self.now_ms();
        let held = self.fleet.held();
        self.pace.holds_here = held.is_some();
        let held = held.unwrap_or_default();
        let gauges = self
            .fleet
            .workers
            .iter()
            .map(|worker| WorkerGauges::new(worker.load.own(), held.get(&worker.id)));
        let pools = self.fleet.pools.iter().map(|pool| PoolGauges {
            pool: PoolKey::of(pool.name()),
            queued: pool.queued() as u64,
            budget: pool.budget(),
        });
        if let Some(message) = self.publisher.message(now_ms, gauges, pools) {
            if message.is_delta() {
                self.pace.changed_at = Instant::now();
            }
            self.publish(bus, SubjectKind::Load, message.encode());
        }
        if Instant::now() >= self.slow_at.usage {
            self.slow_at.usage = Instant::now() + self.parts.spec.usage_every();
            if let Some(message) = self.usage.message(now_ms) {
                self.publish(bus, SubjectKind::Usage, message.encode());
            }
        }
        if Instant::now() >= self.slow_at.costs {
            self.slow_at.costs = Instant::now() + COSTS_EVERY;
            let workers = self.fleet.workers.iter();
            let workers = workers.map(|worker| (worker.key, worker.load.cost()));
            if let Some(message) = self.costs.message(workers) {
                self.publish(bus, SubjectKind::Cost, message.encode());
            }
        }
    }

    fn publish<B: Bus>(&mut self, bus: &B, kind: SubjectKind, payload: Vec<u8>) {
        let subject = FleetSubject {
            kind,
            router: self.parts.router,
        };
        let bytes = payload.len();
        let taken = bus.publish(subject, payload);
        self.parts.metrics.published(bytes, taken);
        if !taken {
            self.publisher.resend();
            self.usage.resend();
        }
    }

    fn set_connection(&mut self, connection: Option<BusConnection>) {
        self.connection = connection;
        self.parts.metrics.connected(connection.is_some());
    }

    /// Records whether another router counts as live during the connection.
    fn note_heard(&mut self) {
        let is_any_live = self.peers.live() > 0;
        if let Some(connection) = &mut self.connection {
            connection.has_heard |= is_any_live;
        }
    }

    /// Returns `true` if silent routers are away, rather than not heard yet.
    ///
    /// After an outage of the bus the others may not have sent a message yet: until one is heard, or was silent for as
    /// long as a router that is removed, they count as lost.
    fn hears_others(&self) -> bool {
        let longest_silence = self.parts.spec.forget_after();
        self.connection
            .is_some_and(|connection| connection.has_heard || connection.since.elapsed() >= longest_silence)
    }

    /// Removes the loads of all other routers.
    fn forget_others(&mut self) {
        let now_ms = self.now_ms();
        for member in self.peers.members(now_ms) {
            self.peers.goodbye(member.router);
        }
        self.pass_on_freed();
    }

    fn report(&self, own: &HelloMessage, now_ms: u64) -> ReplicaReport {
        let others = self.peers.members(now_ms).into_iter().map(|member| {
            let hello = member.hello.as_ref();
            let state = hello.map_or(RouterState::Starting, |hello| hello.state);
            RouterRow {
                router: member.router.to_string(),
                name: hello.map(|hello| hello.name.clone()),
                version: hello.map(|hello| hello.version.clone()),
                state: if member.is_silent {
                    "silent"
                } else {
                    state.as_str()
                },
                newest: NewestMessage {
                    silence_ms: member.silence_ms,
                    delay_ms: member.delay_ms,
                },
                requests: member.requests,
                same_fleet: hello.map(|hello| hello.fleet_hash == own.fleet_hash),
                same_config: hello.map(|hello| hello.config_hash == own.config_hash),
                unknown_workers: member.unknown_workers,
                fill: hello.and_then(|hello| hello.fill),
            }
        });
        let requests = self
            .fleet
            .workers
            .iter()
            .map(|worker| u64::from(worker.load.own().requests));
        ReplicaReport {
            fleet: self.parts.spec.fleet.clone(),
            connected: self.connection.is_some(),
            own: RouterRow {
                router: own.router.clone(),
                name: Some(own.name.clone()),
                version: Some(own.version.clone()),
                state: own.state.as_str(),
                newest: NewestMessage::default(),
                requests: requests.sum(),
                same_fleet: Some(true),
                same_config: Some(true),
                unknown_workers: 0,
                fill: own.fill,
            },
            others: others.collect(),
            hashes: FleetHashes::of(&own.fleet_hash, &own.config_hash),
        }
    }

    fn now_ms(&self) -> u64 {
        millis(self.started.elapsed())
    }
}

/// Effect of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handled {
    /// The loads of other routers may have changed.
    Loads,
    /// Anything else.
    Other,
    /// The bus has ended.
    Closed,
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
