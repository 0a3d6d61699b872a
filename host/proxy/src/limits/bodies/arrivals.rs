//! Bodies whose clients are waited for. There is room for so many; beyond it, the body that has been arriving for longest
//! gives way to one that begins, so that the pace a body must keep rises with scarcity.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::{BodiesFull, BodyTotals, haste};

/// A body has so much time whoever else waits.
const LEAST_TIME: Duration = Duration::from_secs(1);
/// Where memory is short, one of so many ends at a time.
const ENDED_PART: usize = 4;

/// The bodies that are arriving, by their numbers.
#[derive(Debug)]
pub(super) struct Arrivals {
    limit: AtomicUsize,
    arriving: Mutex<BTreeMap<u64, Arriving>>,
}

#[derive(Debug)]
struct Arriving {
    since: Instant,
    shared: Arc<Shared>,
}

/// What a body and who ends it both see.
#[derive(Debug, Default)]
struct Shared {
    ends: Notify,
    /// Whether it ends for want of memory.
    is_for_memory: AtomicBool,
    /// Bytes that it has taken.
    held: AtomicUsize,
}

/// Why a body ends before it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivesWay {
    /// Another one needs its place.
    ToAnother,
    /// The process needs its memory.
    ToAll,
}

/// A body is arriving until this is dropped.
#[derive(Debug)]
pub(crate) struct Arrival {
    arrivals: Arc<Arrivals>,
    number: u64,
    shared: Arc<Shared>,
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

    pub(super) fn begin(this: &Arc<Self>, number: u64) -> Result<Arrival, BodiesFull> {
        let mut arriving = this.lock();
        if arriving.len() >= this.limit.load(Ordering::Relaxed) {
            let oldest = arriving.first_entry().ok_or(BodiesFull)?;
            if oldest.get().since.elapsed() < LEAST_TIME {
                return Err(BodiesFull);
            }
            oldest.remove().shared.ends.notify_one();
        }
        let shared = Arc::<Shared>::default();
        arriving.insert(
            number,
            Arriving {
                since: Instant::now(),
                shared: Arc::clone(&shared),
            },
        );
        drop(arriving);
        Ok(Arrival {
            arrivals: Arc::clone(this),
            number,
            shared,
        })
    }

    pub(super) fn haste(&self) -> u32 {
        haste(self.count(), self.limit.load(Ordering::Relaxed))
    }

    /// Ends a quarter of the bodies, those that hold most.
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

impl Arrival {
    /// The body has taken so many bytes.
    pub(crate) fn holds(&self, bytes: usize) {
        self.shared.held.store(bytes, Ordering::Relaxed);
    }

    /// Ends when the body must give way.
    pub(crate) async fn gives_way(&self) -> GivesWay {
        self.shared.ends.notified().await;
        match self.shared.is_for_memory.load(Ordering::Relaxed) {
            true => GivesWay::ToAll,
            false => GivesWay::ToAnother,
        }
    }
}

impl Drop for Arrival {
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
            let ends = |body: &&Arrival| body.gives_way().now_or_never() == Some(GivesWay::ToAll);
            bodies.iter().filter(ends).map(|body| body.number).collect()
        };
        assert_eq!(ended(), [1, 4]);
        assert_eq!(ended(), [3]);
        assert_eq!((ended(), ended(), ended()), (vec![0], vec![2], vec![]));
    }
}
