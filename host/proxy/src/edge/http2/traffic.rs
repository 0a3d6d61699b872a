//! State of all streams of one connection: their number, their connection slots, the idle time, and the reset budget.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::rt::Executor;
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::resets::ResetBudget;
use super::stream::StreamTimes;
use crate::edge::connections::{ActiveRequest, ConnectionSlot, Forwarded, NoConnectionSlot, StreamSlot};
use crate::edge::drive::overdue;
use crate::observe::edge_metrics::{CloseReason, EdgeMetrics};
use crate::tasks;

/// Delay of the reset after a refusal whose request body was not read. Some clients (curl 7.88) miss a response that
/// comes with the reset.
const LINGER: Duration = Duration::from_millis(200);

tokio::task_local! {
    /// Stream that the current task answers.
    static STREAM: Arc<StreamTimes>;
}

/// Streams of a connection.
#[derive(Debug)]
pub(super) struct Traffic {
    pub(super) slot: Arc<ConnectionSlot>,
    /// `true` once a head has come.
    pub(super) has_head: AtomicBool,
    /// Write timeout of a response.
    patience: Duration,
    open: Mutex<Open>,
    became_idle: Notify,
    own_slot_freed: Notify,
    resets: ResetBudget,
    /// Cancelled once the client has exceeded its reset budget.
    flooded: CancellationToken,
    metrics: EdgeMetrics,
    ends: TrafficEnds,
}

/// Cancellation tokens of streams.
#[derive(Debug)]
pub(super) struct TrafficEnds {
    /// Cancelled when all responses are to end at once with an error.
    pub(super) cut: CancellationToken,
    /// Cancelled when the connection is gone.
    pub(super) over: CancellationToken,
    pub(super) tasks: TaskTracker,
}

#[derive(Debug)]
struct Open {
    count: usize,
    /// Present while any stream is open.
    active: Option<ActiveRequest>,
    /// `true` while a stream uses the connection's own slot.
    is_own_slot_taken: bool,
    idle_since: Instant,
}

/// Open stream, until this is dropped.
#[derive(Debug)]
pub(super) struct StreamEntry {
    traffic: Arc<Traffic>,
    has_own_slot: bool,
    /// Additional slot, if another stream uses the connection's own.
    stream_slot: Option<StreamSlot>,
    /// Count of a client behind a trusted proxy.
    forwarded: Option<Forwarded>,
}

impl Traffic {
    pub(super) fn new(
        slot: ConnectionSlot,
        metrics: EdgeMetrics,
        resets: u32,
        patience: Duration,
        cut: CancellationToken,
    ) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            slot: Arc::new(slot),
            has_head: AtomicBool::new(false),
            patience,
            open: Mutex::new(Open {
                count: 0,
                active: None,
                is_own_slot_taken: false,
                idle_since: now,
            }),
            became_idle: Notify::new(),
            own_slot_freed: Notify::new(),
            resets: ResetBudget::new(resets, now),
            flooded: CancellationToken::new(),
            metrics,
            ends: TrafficEnds {
                cut,
                over: CancellationToken::new(),
                tasks: TaskTracker::new(),
            },
        })
    }

    /// Registers a new stream.
    pub(super) fn enter(self: &Arc<Self>) -> StreamEntry {
        self.has_head.store(true, Ordering::Relaxed);
        self.metrics.came_over_http2();
        let mut open = self.lock();
        open.count += 1;
        if open.active.is_none() {
            open.active = Some(self.slot.begin_request());
        }
        drop(open);
        StreamEntry {
            traffic: Arc::clone(self),
            has_own_slot: false,
            stream_slot: None,
            forwarded: None,
        }
    }

    /// Resolves once no stream has been open for `limit`.
    pub(super) async fn idle(&self, limit: Duration) {
        loop {
            // Made before the state is read, so that it sees every later end of the last stream.
            let became_idle = self.became_idle.notified();
            let Some(since) = self.idle_since() else {
                became_idle.await;
                continue;
            };
            sleep_until((since + limit).into()).await;
            if self.idle_since() == Some(since) {
                return;
            }
        }
    }

    /// Resolves once the client has exceeded its reset budget.
    pub(super) async fn flooded(&self) {
        self.flooded.cancelled().await;
    }

    /// Ends the streams of a closed connection.
    pub(super) async fn end(&self) {
        self.ends.over.cancel();
        self.ends.tasks.close();
        self.ends.tasks.wait().await;
    }

    fn idle_since(&self) -> Option<Instant> {
        let open = self.lock();
        (open.count == 0).then_some(open.idle_since)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a stream until the response ends or the client resets it.
    async fn run(self: Arc<Self>, times: Arc<StreamTimes>, answer: impl Future<Output = ()>) {
        let mut answer = pin!(answer);
        let ended_itself = self.finish(answer.as_mut(), &times).await;
        if times.is_answered() {
            self.resets.answered();
            if ended_itself && times.lingers() {
                // Dropping `answer` resets the stream.
                tokio::select! {
                    () = sleep(LINGER) => {}
                    () = self.ends.over.cancelled() => {}
                }
            }
        } else if ended_itself && !self.resets.reset(times.began, Instant::now()) {
            self.flooded.cancel();
        }
    }

    /// Drives the answer. Returns `true` if it ended by itself.
    async fn finish(&self, mut answer: Pin<&mut impl Future<Output = ()>>, times: &StreamTimes) -> bool {
        tokio::select! {
            biased;
            () = answer.as_mut() => return true,
            () = self.ends.over.cancelled() => return false,
            () = overdue(|| times.deadline()) => {
                self.metrics.turned(CloseReason::Overdue);
                return false;
            }
            // The wake-up lets the response end with an error.
            () = self.ends.cut.cancelled() => {}
        }
        tokio::select! {
            biased;
            () = answer => true,
            () = self.ends.over.cancelled() => false,
        }
    }
}

impl StreamEntry {
    /// Returns the times of the stream that the calling task answers.
    pub(super) fn times(&self) -> Arc<StreamTimes> {
        // Hyper passes every stream to the executor below.
        let unknown = || StreamTimes::new(Instant::now(), self.traffic.patience);
        STREAM.try_with(Arc::clone).unwrap_or_else(|_| unknown())
    }

    pub(super) fn slot(&self) -> &ConnectionSlot {
        &self.traffic.slot
    }

    /// Assigns the stream to a client behind a trusted proxy.
    pub(super) fn is_of(&mut self, forwarded: Option<Forwarded>) {
        self.forwarded = forwarded;
    }

    /// Waits for a slot if the request at `path` needs one: the connection's own, or an additional one.
    pub(super) async fn acquire(&mut self, path: &str) -> Result<(), NoConnectionSlot> {
        let traffic = Arc::clone(&self.traffic);
        let mut stream_slot = pin!(traffic.slot.acquire_for_stream(path));
        loop {
            if !std::mem::replace(&mut traffic.lock().is_own_slot_taken, true) {
                self.has_own_slot = true;
                return traffic.slot.acquire(path).await;
            }
            tokio::select! {
                stream_slot = stream_slot.as_mut() => {
                    self.stream_slot = stream_slot?;
                    return Ok(());
                }
                () = traffic.own_slot_freed.notified() => {}
            }
        }
    }
}

impl Drop for StreamEntry {
    fn drop(&mut self) {
        drop((self.stream_slot.take(), self.forwarded.take()));
        let mut open = self.traffic.lock();
        open.count -= 1;
        if self.has_own_slot {
            open.is_own_slot_taken = false;
            self.traffic.own_slot_freed.notify_one();
        }
        if open.count == 0 {
            open.idle_since = Instant::now();
            open.active = None;
            self.traffic.became_idle.notify_waiters();
        }
    }
}

/// Executor that runs each stream as a task of its own.
#[derive(Debug, Clone)]
pub(super) struct StreamTasks(pub(super) Arc<Traffic>);

impl<F> Executor<F> for StreamTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, answer: F) {
        let traffic = Arc::clone(&self.0);
        let times = StreamTimes::new(Instant::now(), traffic.patience);
        let task = STREAM.scope(Arc::clone(&times), traffic.run(times, answer));
        tasks::spawn(&self.0.ends.tasks, "stream", task);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::gauge::Gauge;
    use tokio::time::timeout;

    use super::*;
    use crate::edge::connections::{AddressLimit, ConnectionLimiter, ConnectionLimiterSpec};

    #[tokio::test]
    async fn the_end_of_the_last_stream_wakes_all_that_wait_for_it() {
        let limiter = ConnectionLimiter::new(ConnectionLimiterSpec {
            limit: 1,
            key: "server.max-connections",
            taken: Gauge::default(),
            edge: EdgeMetrics::default(),
            memory: Arc::default(),
            stop: CancellationToken::new(),
        });
        let slot = limiter.admit(None, AddressLimit::Part).await.unwrap();
        let patience = Duration::from_secs(5);
        let cut = CancellationToken::new();
        let traffic = Traffic::new(slot, EdgeMetrics::default(), 1, patience, cut);
        let entry = traffic.enter();
        let mut keep_alive = pin!(traffic.idle(Duration::from_hours(1)));
        let mut farewell = pin!(traffic.idle(Duration::ZERO));
        let both = async {
            tokio::select! {
                biased;
                () = keep_alive.as_mut() => false,
                () = farewell.as_mut() => true,
                () = tokio::task::yield_now() => {
                    drop(entry);
                    farewell.await;
                    true
                }
            }
        };
        assert_eq!(timeout(patience, both).await, Ok(true));
    }
}
