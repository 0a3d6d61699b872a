//! Task of the transfer: answers other routers, and fetches while this router starts.

use std::sync::Arc;
use std::time::Duration;

use replicas::{
    DirectBus, DirectEvent, FeedKey, RefusalReason, RouterId, TransferMessage, TransferRequest,
    TransferServer,
};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::IndexContents;
use super::fetcher::{FetchStep, Fetcher, PeersNow};
use super::metrics::{FetchResult, TransferMetrics};
use crate::report::{ReplicaReport, ReplicaReports};

/// Interval of looks at the feeds, while this router starts.
const TICK: Duration = Duration::from_millis(20);
/// Most time between two looks that counts as waiting. In a longer pause the router was stalled, and could hear no
/// other one.
const LONGEST_LOOK: Duration = Duration::from_millis(100);
/// Longest time to read the contents of a feed.
const EXPORT: Duration = Duration::from_secs(2);
/// Bytes that are sent in a second.
const RATE: f64 = (64 << 20) as f64;

/// Parts of a transfer.
#[derive(Debug)]
pub struct TransferParts<C> {
    /// Identity of this run.
    pub router: RouterId,
    /// The index.
    pub contents: C,
    /// Reports of the exchange, with the other routers.
    pub reports: ReplicaReports,
    /// Metrics.
    pub metrics: Arc<TransferMetrics>,
}

/// Transfer of the index.
#[derive(Debug)]
pub struct IndexTransfer<C> {
    parts: TransferParts<C>,
    started: Instant,
    /// Last look at the feeds, and the time that this router has waited until then.
    looked: Instant,
    waited: Duration,
    server: TransferServer,
    fetcher: Fetcher,
    /// Contents that are being taken over.
    seeding: Vec<(FeedKey, oneshot::Receiver<bool>)>,
}

impl<C: IndexContents> IndexTransfer<C> {
    /// Returns the transfer of a router.
    #[must_use]
    pub fn new(parts: TransferParts<C>) -> Self {
        let started = Instant::now();
        Self {
            started,
            looked: started,
            waited: Duration::ZERO,
            server: TransferServer::default(),
            fetcher: Fetcher::new(parts.router),
            seeding: Vec::new(),
            parts,
        }
    }

    /// Answers other routers until `stop` is cancelled. Fetches until the start is over.
    pub async fn run<B: DirectBus>(mut self, mut bus: B, stop: CancellationToken) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_starting = self.parts.contents.is_open();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                event = bus.next() => match event {
                    DirectEvent::Message { from, payload } => self.receive(&bus, from, &payload).await,
                    DirectEvent::Closed => break,
                },
                _ = tick.tick(), if is_starting => self.fetch(&bus),
            }
        }
        self.parts.contents.close();
    }

    async fn receive<B: DirectBus>(&mut self, bus: &B, from: RouterId, payload: &[u8]) {
        let now = self.waited;
        let step = match TransferMessage::decode(payload) {
            Ok(TransferMessage::Request(request)) => return self.answer(bus, from, &request).await,
            Ok(TransferMessage::Part(part)) => {
                self.parts.metrics.received(part.bytes.len());
                self.fetcher.part(now, from, part)
            }
            Ok(TransferMessage::Refusal(id, reason)) => {
                debug!(router = %from, reason = reason.as_str(), "another router gives no contents of a feed");
                self.fetcher.refusal(now, from, id, reason)
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                return debug!(router = %from, error, "ignored a message of another router's transfer");
            }
        };
        match step {
            FetchStep::None => {}
            FetchStep::Send((to, message)) => {
                bus.send(to, message.encode());
            }
            FetchStep::Failed(result) => self.parts.metrics.fetched(result),
            FetchStep::Contents(feed, contents) => self.take_over(from, feed, &contents),
        }
    }

    /// Sends the part that another router requests, at a limited rate.
    async fn answer<B: DirectBus>(&mut self, bus: &B, from: RouterId, request: &TransferRequest) {
        let message = match self.part(from, request).await {
            Ok(message) => message,
            Err(reason) => TransferMessage::Refusal(request.id, reason),
        };
        let bytes = message.encode();
        let length = bytes.len();
        if bus.send(from, bytes) {
            self.parts.metrics.sent(length);
            sleep(Duration::from_secs_f64(length as f64 / RATE)).await;
        }
    }

    async fn part(
        &mut self,
        from: RouterId,
        request: &TransferRequest,
    ) -> Result<TransferMessage, RefusalReason> {
        let is_same = |report: ReplicaReport| report.hashes == request.hashes;
        if !self.parts.reports.get().is_some_and(is_same) {
            return Err(RefusalReason::OtherFleet);
        }
        // A router that starts itself has nothing that is older.
        if self.parts.contents.is_open() {
            return Err(RefusalReason::NotCurrent);
        }
        let now_ms = self.now_ms();
        self.server.expire(now_ms);
        if let Some(part) = self.server.part(from, request, now_ms) {
            return Ok(TransferMessage::Part(part));
        }
        if request.part > 0 {
            return Err(RefusalReason::Over);
        }
        if !self.server.has_room() {
            return Err(RefusalReason::Busy);
        }
        let export = self.parts.contents.export(request.id.feed, request.known_from);
        let Ok(Ok(contents)) = timeout(EXPORT, export).await else {
            return Err(RefusalReason::NotCurrent);
        };
        self.server.begin(from, request.id, contents?, now_ms);
        self.parts.metrics.gave();
        let part = self.server.part(from, request, now_ms);
        part.map(TransferMessage::Part).ok_or(RefusalReason::Over)
    }

    /// Takes the due steps while this router starts.
    fn fetch<B: DirectBus>(&mut self, bus: &B) {
        self.finish_seeds();
        let now = Instant::now();
        self.waited += now.duration_since(self.looked).min(LONGEST_LOOK);
        self.looked = now;
        let report = self.parts.reports.get();
        let peers = PeersNow {
            routers: report.as_ref().map(ReplicaReport::twins).unwrap_or_default(),
            hashes: report.map(|report| report.hashes).unwrap_or_default(),
        };
        let wanted = self.parts.contents.wanted();
        let due = self.fetcher.due(self.waited, &peers, &wanted);
        for _ in 0..due.timed_out {
            self.parts.metrics.fetched(FetchResult::TimedOut);
        }
        for (to, message) in due.send {
            // A message that is not taken is repeated as an unanswered one.
            bus.send(to, message.encode());
        }
        for feed in due.settled {
            self.parts.contents.settle(feed);
        }
        if due.is_over {
            self.parts.contents.close();
        }
    }

    fn take_over(&mut self, from: RouterId, feed: FeedKey, contents: &[u8]) {
        match self.parts.contents.seed(feed, contents) {
            Ok(seeding) => {
                info!(router = %from, bytes = contents.len(), "took over the contents of a feed from another router");
                self.seeding.push((feed, seeding));
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                warn!(router = %from, error, "failed to read the contents of a feed of another router");
                self.parts.metrics.fetched(FetchResult::Unreadable);
                self.fetcher.seeded(feed, false);
            }
        }
    }

    /// Settles feeds whose contents were taken over. Those that were not are requested from another router.
    fn finish_seeds(&mut self) {
        for (feed, mut seeding) in std::mem::take(&mut self.seeding) {
            let is_taken = match seeding.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => {
                    self.seeding.push((feed, seeding));
                    continue;
                }
                Ok(is_taken) => is_taken,
                Err(oneshot::error::TryRecvError::Closed) => false,
            };
            if is_taken {
                // Counted before: settling the last feed ends the start, and readers expect the count then.
                self.parts.metrics.fetched(FetchResult::Taken);
                self.parts.contents.settle(feed);
            } else {
                self.parts.metrics.fetched(FetchResult::Useless);
            }
            self.fetcher.seeded(feed, is_taken);
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
