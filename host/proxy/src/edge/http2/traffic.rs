//! All streams of one connection: how many are open, on which seats, since when there is none, and what their client may
//! still reset.

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
use crate::edge::connections::{ConnectionSlot, Forwarded, NoConnectionSlot, SeatBeside, Turn};
use crate::edge::drive::overdue;
use crate::edge::metrics::{CloseReason, EdgeMetrics};
use crate::tasks;

/// A refused request whose body was not read is reset so long after its answer: some clients (curl 7.88) do not see an answer that
/// comes with the reset.
const LINGER: Duration = Duration::from_millis(200);

tokio::task_local! {
    /// The stream that a task answers.
    static STREAM: Arc<StreamTimes>;
}

/// The streams of a connection.
#[derive(Debug)]
pub(super) struct Traffic {
    pub(super) seat: Arc<ConnectionSlot>,
    /// Whether a head has come.
    pub(super) heard: AtomicBool,
    /// How long a client may take nothing of an answer.
    patience: Duration,
    open: Mutex<Open>,
    became_idle: Notify,
    own_seat_left: Notify,
    resets: ResetBudget,
    /// Cancelled once the client has reset more than it may.
    flooded: CancellationToken,
    metrics: EdgeMetrics,
    ends: TrafficEnds,
}

/// What ends streams from outside.
#[derive(Debug)]
pub(super) struct TrafficEnds {
    /// All answers are to end at once, and say so.
    pub(super) cut: CancellationToken,
    /// The connection is gone.
    pub(super) over: CancellationToken,
    pub(super) tasks: TaskTracker,
}

#[derive(Debug)]
struct Open {
    count: usize,
    /// While there are any.
    turn: Option<Turn>,
    /// Whether one of them is on the connection's own seat.
    is_own_seat_taken: bool,
    idle_since: Instant,
}

/// An open stream, until this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    traffic: Arc<Traffic>,
    has_own_seat: bool,
    /// Where another stream is on the connection's own.
    beside: Option<SeatBeside>,
    /// Of a client behind a front.
    forwarded: Option<Forwarded>,
}

impl Traffic {
    pub(super) fn new(
        seat: ConnectionSlot,
        metrics: EdgeMetrics,
        (resets, patience): (u32, Duration),
        cut: CancellationToken,
    ) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            seat: Arc::new(seat),
            heard: AtomicBool::new(false),
            patience,
            open: Mutex::new(Open {
                count: 0,
                turn: None,
                is_own_seat_taken: false,
                idle_since: now,
            }),
            became_idle: Notify::new(),
            own_seat_left: Notify::new(),
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

    /// A stream begins.
    pub(super) fn enter(self: &Arc<Self>) -> Entry {
        self.heard.store(true, Ordering::Relaxed);
        self.metrics.came_over_http2();
        let mut open = self.lock();
        open.count += 1;
        if open.turn.is_none() {
            open.turn = Some(self.seat.turn());
        }
        drop(open);
        Entry {
            traffic: Arc::clone(self),
            has_own_seat: false,
            beside: None,
            forwarded: None,
        }
    }

    /// Ends once no stream was open for `limit`.
    pub(super) async fn idle(&self, limit: Duration) {
        loop {
            let Some(since) = self.idle_since() else {
                self.became_idle.notified().await;
                continue;
            };
            sleep_until((since + limit).into()).await;
            if self.idle_since() == Some(since) {
                return;
            }
        }
    }

    /// Ends once the client has reset more streams than it may.
    pub(super) async fn flooded(&self) {
        self.flooded.cancelled().await;
    }

    /// Ends the streams of a connection that is gone.
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

    /// Answers a stream to its end, or as far as its client lets it come.
    async fn run(self: Arc<Self>, times: Arc<StreamTimes>, answer: impl Future<Output = ()>) {
        let mut answer = pin!(answer);
        let ended_itself = self.finish(answer.as_mut(), &times).await;
        if times.is_answered() {
            self.resets.answered();
            if ended_itself && times.lingers() {
                // The stream is reset when `answer` is dropped.
                tokio::select! {
                    () = sleep(LINGER) => {}
                    () = self.ends.over.cancelled() => {}
                }
            }
        } else if ended_itself && !self.resets.reset(times.began, Instant::now()) {
            self.flooded.cancel();
        }
    }

    /// Returns whether the answer ended by itself.
    async fn finish(&self, mut answer: Pin<&mut impl Future<Output = ()>>, times: &StreamTimes) -> bool {
        tokio::select! {
            biased;
            () = answer.as_mut() => return true,
            () = self.ends.over.cancelled() => return false,
            () = overdue(|| times.deadline()) => {
                self.metrics.turned(CloseReason::Overdue);
                return false;
            }
            // It is woken to say so.
            () = self.ends.cut.cancelled() => {}
        }
        tokio::select! {
            biased;
            () = answer => true,
            () = self.ends.over.cancelled() => false,
        }
    }
}

impl Entry {
    /// The times of the stream that the calling task answers.
    pub(super) fn times(&self) -> Arc<StreamTimes> {
        // Hyper gives every stream to the executor below.
        let unknown = || StreamTimes::new(Instant::now(), self.traffic.patience);
        STREAM.try_with(Arc::clone).unwrap_or_else(|_| unknown())
    }

    pub(super) fn seat(&self) -> &ConnectionSlot {
        &self.traffic.seat
    }

    /// It is that of a client behind a front.
    pub(super) fn is_of(&mut self, forwarded: Option<Forwarded>) {
        self.forwarded = forwarded;
    }

    /// Waits for a seat, where the request at `path` needs one: the connection's own, or one beside it.
    pub(super) async fn sit(&mut self, path: &str) -> Result<(), NoConnectionSlot> {
        let traffic = Arc::clone(&self.traffic);
        let mut beside = pin!(traffic.seat.sit_beside(path));
        loop {
            if !std::mem::replace(&mut traffic.lock().is_own_seat_taken, true) {
                self.has_own_seat = true;
                return traffic.seat.sit(path).await;
            }
            tokio::select! {
                beside = beside.as_mut() => {
                    self.beside = beside?;
                    return Ok(());
                }
                () = traffic.own_seat_left.notified() => {}
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        drop((self.beside.take(), self.forwarded.take()));
        let mut open = self.traffic.lock();
        open.count -= 1;
        if self.has_own_seat {
            open.is_own_seat_taken = false;
            self.traffic.own_seat_left.notify_one();
        }
        if open.count == 0 {
            open.idle_since = Instant::now();
            open.turn = None;
            self.traffic.became_idle.notify_one();
        }
    }
}

/// Runs each stream as a task of its own.
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
