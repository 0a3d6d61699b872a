//! Bodies whose clients are waited for. There is room for so many; beyond it, the body that has been arriving for longest
//! gives way to one that begins, so that the pace a body must keep rises with scarcity.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::{BodiesFull, BodyTotals};

/// A body has so much time whoever else waits.
const LEAST_TIME: Duration = Duration::from_secs(1);

/// The bodies that are arriving, by their numbers.
#[derive(Debug)]
pub(super) struct Arrivals {
    limit: AtomicUsize,
    arriving: Mutex<BTreeMap<u64, Arriving>>,
}

#[derive(Debug)]
struct Arriving {
    since: Instant,
    gives_way: Arc<Notify>,
}

/// A body is arriving until this is dropped.
#[derive(Debug)]
pub(crate) struct Arrival {
    arrivals: Arc<Arrivals>,
    number: u64,
    gives_way: Arc<Notify>,
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
            oldest.remove().gives_way.notify_one();
        }
        let gives_way = Arc::<Notify>::default();
        arriving.insert(
            number,
            Arriving {
                since: Instant::now(),
                gives_way: Arc::clone(&gives_way),
            },
        );
        drop(arriving);
        Ok(Arrival {
            arrivals: Arc::clone(this),
            number,
            gives_way,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arriving>> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arrival {
    /// Ends when the body must give way.
    pub(crate) async fn gives_way(&self) {
        self.gives_way.notified().await;
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
}
