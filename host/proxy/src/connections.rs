//! How many clients may be connected at a time, how many are, and which of them goes when another waits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::metrics::ProxyMetrics;
use crate::server::{EdgeMetrics, Turned};
use crate::throttle::Throttle;

/// While somebody waits, one who is idle is looked for so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between two requests of a busy client there may be so much time; no such connection is closed.
const IDLE_FOR: Duration = Duration::from_secs(1);

/// Room for so many connections.
#[derive(Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    limit: usize,
    taken: Gauge,
    full_log: Throttle,
    edge: EdgeMetrics,
    register: Arc<Register>,
    /// All connections end.
    stop: CancellationToken,
}

/// Who is connected.
#[derive(Debug)]
struct Register {
    epoch: Instant,
    numbers: AtomicU64,
    standings: Mutex<HashMap<u64, Arc<Standing>>>,
}

/// One connection, as the others' wait sees it.
#[derive(Debug)]
struct Standing {
    epoch: Instant,
    /// Milliseconds from the epoch, counted from 1, since which nothing is asked on it; 0 while something is.
    idle_since: AtomicU64,
    /// The same, when what is asked must be answered to its end; 0: whenever it is.
    ends: AtomicU64,
    stop: CancellationToken,
}

/// Room for one.
#[derive(Debug)]
pub(crate) struct Seat<'r> {
    permit: OwnedSemaphorePermit,
    room: &'r Room,
}

/// A connection has it; free again when dropped.
#[derive(Debug)]
pub(crate) struct TakenSeat {
    _permit: OwnedSemaphorePermit,
    taken: Gauge,
    register: Arc<Register>,
    number: u64,
    standing: Arc<Standing>,
}

/// A request is being answered on a connection until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Standing>);

impl Room {
    /// Room for so many connections, which are to end with `stop`.
    pub(crate) fn new(limit: usize, metrics: &ProxyMetrics, stop: &CancellationToken) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        let shown = i64::try_from(limit).unwrap_or(i64::MAX);
        metrics.client_connections_limit.set(shown);
        Self {
            free: Arc::new(Semaphore::new(limit)),
            limit,
            taken: metrics.client_connections.clone(),
            full_log: Throttle::default(),
            edge: metrics.edge.clone(),
            register: Arc::new(Register {
                epoch: Instant::now(),
                numbers: AtomicU64::new(0),
                standings: Mutex::default(),
            }),
            stop: stop.clone(),
        }
    }

    /// Waits for a seat, and says so in the log. Meanwhile whoever was idle for longest is asked to leave.
    pub(crate) async fn seat(&self) -> Seat<'_> {
        let free = || Arc::clone(&self.free);
        if let Ok(permit) = free().try_acquire_owned() {
            return Seat { permit, room: self };
        }
        if let Some(held_back) = self.full_log.pass() {
            warn!(
                limit = self.limit,
                key = "server.max-connections",
                held_back,
                "as many clients are connected as may be; further ones wait"
            );
        }
        loop {
            self.make_room();
            if let Ok(permit) = timeout(LOOK_EVERY, free().acquire_owned()).await {
                let permit = permit.expect("nobody closes it");
                return Seat { permit, room: self };
            }
        }
    }

    fn make_room(&self) {
        if let Some(standing) = self.register.longest_idle(Instant::now()) {
            standing.stop.cancel();
            self.edge.turned(Turned::MadeRoom);
        }
    }
}

impl Register {
    /// Returns the connection that was idle for longest, and long enough, and was not closed for another yet; among equals, the
    /// one that came first.
    fn longest_idle(&self, now: Instant) -> Option<Arc<Standing>> {
        let now = since(self.epoch, now);
        let least = u64::try_from(IDLE_FOR.as_millis()).unwrap_or(u64::MAX);
        let standings = self.lock();
        let idle = standings.iter().filter_map(|(number, standing)| {
            let since = standing.idle_since.load(Ordering::Relaxed);
            let may_go = since > 0 && now.saturating_sub(since) >= least && !standing.stop.is_cancelled();
            may_go.then_some(((since, *number), standing))
        });
        idle.min_by_key(|(order, _)| *order)
            .map(|(_, standing)| Arc::clone(standing))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Standing>>> {
        self.standings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Milliseconds, counted from 1.
fn since(epoch: Instant, now: Instant) -> u64 {
    let elapsed = now.duration_since(epoch).as_millis();
    u64::try_from(elapsed).unwrap_or(u64::MAX).saturating_add(1)
}

impl Seat<'_> {
    pub(crate) fn take(self) -> TakenSeat {
        let Room {
            taken,
            register,
            stop,
            ..
        } = self.room;
        taken.inc();
        let number = register.numbers.fetch_add(1, Ordering::Relaxed);
        let standing = Arc::new(Standing {
            epoch: register.epoch,
            idle_since: AtomicU64::new(since(register.epoch, Instant::now())),
            ends: AtomicU64::new(0),
            stop: stop.child_token(),
        });
        register.lock().insert(number, Arc::clone(&standing));
        TakenSeat {
            _permit: self.permit,
            taken: taken.clone(),
            register: Arc::clone(register),
            number,
            standing,
        }
    }
}

impl TakenSeat {
    /// A request begins on this connection.
    pub(crate) fn turn(&self) -> Turn {
        self.standing.idle_since.store(0, Ordering::Relaxed);
        Turn(Arc::clone(&self.standing))
    }

    /// When the answer that is under way must have been taken, where it must.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let after = self.standing.ends.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.standing.epoch + Duration::from_millis(after))
    }

    /// Ends when the connection is to end, once it is idle.
    pub(crate) async fn stopped(&self) {
        self.standing.stop.cancelled().await;
    }
}

impl Turn {
    /// The answer must have been taken by then.
    pub(crate) fn must_end(&self, deadline: Instant) {
        let ends = since(self.0.epoch, deadline);
        self.0.ends.store(ends, Ordering::Relaxed);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.ends.store(0, Ordering::Relaxed);
        let now = since(self.0.epoch, Instant::now());
        self.0.idle_since.store(now, Ordering::Relaxed);
    }
}

impl Drop for TakenSeat {
    fn drop(&mut self) {
        self.register.lock().remove(&self.number);
        self.taken.dec();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[tokio::test]
    async fn who_was_idle_for_longest_goes_first_and_who_is_busy_stays() {
        let metrics = ProxyMetrics::new(&mut Registry::default());
        let room = Room::new(3, &metrics, &CancellationToken::new());
        let busy = room.seat().await.take();
        let _turn = busy.turn();
        let early = room.seat().await.take();
        let late = room.seat().await.take();
        let at = |seat: &TakenSeat, ms| seat.standing.idle_since.store(ms, Ordering::Relaxed);
        at(&early, 5);
        at(&late, 9);
        let later = room.register.epoch + 10 * IDLE_FOR;
        let gone = |expected: &TakenSeat| {
            let longest = room.register.longest_idle(later).unwrap();
            assert!(Arc::ptr_eq(&longest, &expected.standing));
            longest.stop.cancel();
        };
        at(&late, 5);
        gone(&early);
        gone(&late);
        assert!(room.register.longest_idle(later).is_none());
        drop(early);
        assert_eq!(room.register.lock().len(), 2);
    }

    #[tokio::test]
    async fn between_two_requests_nobody_is_idle() {
        let metrics = ProxyMetrics::new(&mut Registry::default());
        let room = Room::new(1, &metrics, &CancellationToken::new());
        let seat = room.seat().await.take();
        let turn = seat.turn();
        assert_eq!(seat.deadline(), None);
        turn.must_end(room.register.epoch + IDLE_FOR);
        assert_eq!(seat.deadline(), Some(room.register.epoch + IDLE_FOR));
        drop(turn);
        assert_eq!(seat.deadline(), None);
        assert!(room.register.longest_idle(room.register.epoch).is_none());
    }
}
