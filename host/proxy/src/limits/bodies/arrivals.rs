//! Limiter of bodies in arrival. At the limit, the body that has been arriving for longest is dropped for a new one. So
//! the pace that a body must keep rises with scarcity.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::{BodiesFull, BodyTotals, pace_factor};

/// Minimum time of a body before it may be dropped for another.
const LEAST_TIME: Duration = Duration::from_secs(1);
/// Divisor: while memory is short, this fraction of the bodies is dropped at a time.
const ENDED_PART: usize = 4;

/// Bodies in arrival, by number.
#[derive(Debug)]
pub(super) struct Arrivals {
    limit: AtomicUsize,
    arriving: Mutex<BTreeMap<u64, Arriving>>,
}

#[derive(Debug)]
struct Arriving {
    since: Instant,
    shared: Arc<ArrivalState>,
}

/// State shared by a body and the code that drops it.
#[derive(Debug, Default)]
struct ArrivalState {
    ends: Notify,
    /// Set if the body is dropped for lack of memory.
    is_for_memory: AtomicBool,
    /// Bytes taken by the body.
    held: AtomicUsize,
}

/// Reason why a body is dropped before it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivesWay {
    /// Another body needs its place.
    ToAnother,
    /// The process needs its memory.
    ToAll,
}

/// Body in arrival, until this is dropped.
#[derive(Debug)]
pub(crate) struct BodyArrival {
    arrivals: Arc<Arrivals>,
    number: u64,
    shared: Arc<ArrivalState>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            limit: AtomicUsize::new(BodyTotals::default().unfinished),
            arriving: Mutex::default(),
        }
    }
}

impl Arrivals {
    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn begin(this: &Arc<Self>, number: u64) -> Result<BodyArrival, BodiesFull> {
        let mut arriving = this.lock();
        if arriving.len() >= this.limit.load(Ordering::Relaxed) {
            let oldest = arriving.first_entry().ok_or(BodiesFull)?;
            if oldest.get().since.elapsed() < LEAST_TIME {
                return Err(BodiesFull);
            }
            oldest.remove().shared.ends.notify_one();
        }
        let shared = Arc::<ArrivalState>::default();
        arriving.insert(
            number,
            Arriving {
                since: Instant::now(),
                shared: Arc::clone(&shared),
            },
        );
        drop(arriving);
        Ok(BodyArrival {
            arrivals: Arc::clone(this),
            number,
            shared,
        })
    }

    pub(super) fn pace_factor(&self) -> u32 {
        pace_factor(self.count(), self.limit.load(Ordering::Relaxed))
    }

    /// Drops the quarter of the bodies that hold most bytes.
    pub(super) fn end_largest(&self) {
        let mut arriving = self.lock();
        let held = |body: &Arriving| body.shared.held.load(Ordering::Relaxed);
        let mut numbers: Vec<(usize, u64)> = arriving
            .iter()
            .map(|(number, body)| (held(body), *number))
            .collect();
        let ended = numbers.len().div_ceil(ENDED_PART);
        if ended == 0 {
            return;
        }
        numbers.select_nth_unstable_by_key(ended - 1, |body| Reverse(*body));
        for (_, number) in &numbers[..ended] {
            if let Some(body) = arriving.remove(number) {
                body.shared.is_for_memory.store(true, Ordering::Relaxed);
                body.shared.ends.notify_one();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arriving>> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BodyArrival {
    /// Records the bytes that the body has taken.
    pub(crate) fn holds(&self, bytes: usize) {
        self.shared.held.store(bytes, Ordering::Relaxed);
    }

    /// Resolves when the body must be dropped.
    pub(crate) async fn gives_way(&self) -> GivesWay {
        self.shared.ends.notified().await;
        match self.shared.is_for_memory.load(Ordering::Relaxed) {
            true => GivesWay::ToAll,
            false => GivesWay::ToAnother,
        }
    }
}

impl Drop for BodyArrival {
    fn drop(&mut self) {
        self.arrivals.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_body_that_arrives_for_longest_gives_way_and_a_young_one_does_not() {
        let arrivals = Arc::<Arrivals>::default();
        arrivals.set_limit(2);
        let begin = |number| Arrivals::begin(&arrivals, number);
        let (first, second) = (begin(0).unwrap(), begin(1).unwrap());
        assert!(begin(2).is_err());
        let past = Instant::now().checked_sub(LEAST_TIME).unwrap();
        arrivals.lock().values_mut().for_each(|body| body.since = past);
        let third = begin(3).unwrap();
        assert!(first.gives_way().now_or_never().is_some());
        assert!(second.gives_way().now_or_never().is_none());
        assert_eq!(arrivals.count(), 2);
        drop((first, second));
        assert_eq!(arrivals.count(), 1);
        drop(third);
        assert_eq!(arrivals.count(), 0);
    }

    #[test]
    fn for_want_of_memory_the_bodies_that_hold_most_end_first() {
        let arrivals = Arc::<Arrivals>::default();
        arrivals.end_largest();
        let holding = |number, bytes| {
            let arrival = Arrivals::begin(&arrivals, number).unwrap();
            arrival.holds(bytes);
            arrival
        };
        let bodies: Vec<_> = [3, 9, 0, 7, 8]
            .into_iter()
            .zip(0..)
            .map(|(bytes, number)| holding(number, bytes))
            .collect();
        let ended = || -> Vec<u64> {
            arrivals.end_largest();
            let ends = |body: &&BodyArrival| body.gives_way().now_or_never() == Some(GivesWay::ToAll);
            bodies.iter().filter(ends).map(|body| body.number).collect()
        };
        assert_eq!(ended(), [1, 4]);
        assert_eq!(ended(), [3]);
        assert_eq!((ended(), ended(), ended()), (vec![0], vec![2], vec![]));
    }
}
