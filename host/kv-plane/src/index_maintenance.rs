//! Index maintenance: ages expected blocks that were never confirmed, and reclaims memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kv_index::SharedPrefixIndex;
use routing::WorkerId;
use tokio_util::sync::CancellationToken;

/// Pause between two rounds.
const PACE: Duration = Duration::from_millis(100);
/// Most steps of garbage collection per round, each of some microseconds.
const STEPS: usize = 512;

/// Workers with expected blocks, and the lifetime of these. Those of all others are forgotten.
type Expectations = Box<dyn Fn() -> Vec<(WorkerId, Duration)> + Send>;

/// Work of the maintenance thread.
pub struct IndexMaintenance {
    index: Arc<SharedPrefixIndex>,
    expectations: Expectations,
    /// Last ageing of the blocks of each lifetime.
    aged: BTreeMap<Duration, Instant>,
}

impl IndexMaintenance {
    /// Starts the thread. It ends soon after `stop` is cancelled, and at once if it is unparked then.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread.
    pub fn spawn(
        index: Arc<SharedPrefixIndex>,
        expectations: impl Fn() -> Vec<(WorkerId, Duration)> + Send + 'static,
        stop: CancellationToken,
    ) -> io::Result<JoinHandle<()>> {
        let mut maintenance = Self {
            index,
            expectations: Box::new(expectations),
            aged: BTreeMap::new(),
        };
        let name = std::thread::Builder::new().name("index-upkeep".into());
        name.spawn(move || {
            while !stop.is_cancelled() {
                maintenance.age(Instant::now());
                // Single steps let queries and events in between.
                (0..STEPS).find(|_| !maintenance.index.gc_step());
                std::thread::park_timeout(PACE);
            }
        })
    }

    /// Ages the expected blocks whose lifetime has passed since the last ageing.
    fn age(&mut self, now: Instant) {
        let mut due: BTreeMap<Duration, Vec<WorkerId>> = BTreeMap::new();
        // Before the list, so that a worker that has just come is not missing from it.
        let mut gone = self.index.expected_workers();
        let expectations = (self.expectations)();
        let workers: BTreeSet<WorkerId> = expectations.iter().map(|&(worker, _)| worker).collect();
        // Workers that left, or whose process has ended, have no expected blocks: both generations go. A request that
        // began before a reload may still be sent to such a worker afterwards.
        gone.retain(|worker| !workers.contains(worker));
        self.index.age_expected(&gone);
        self.index.age_expected(&gone);
        for (worker, lifetime) in expectations {
            due.entry(lifetime).or_default().push(worker);
        }
        self.aged.retain(|lifetime, _| due.contains_key(lifetime));
        for (lifetime, workers) in due {
            let aged = self.aged.entry(lifetime).or_insert(now);
            if now.duration_since(*aged) >= lifetime {
                *aged = now;
                self.index.age_expected(&workers);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kv_index::{IndexLimits, Prompt, Sent};

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(60);

    fn expect(index: &SharedPrefixIndex, worker: WorkerId) {
        let sent = Sent {
            worker,
            block_size: 2,
            capacity: 100,
        };
        index.expect(&sent, &mut Prompt::new(&[1, 2, 3, 4], None, None));
    }

    #[test]
    fn a_request_sent_to_a_worker_after_it_has_left_leaves_no_expected_blocks() {
        let index = Arc::new(SharedPrefixIndex::new(IndexLimits { max_blocks: 100 }));
        let mut maintenance = IndexMaintenance {
            index: Arc::clone(&index),
            expectations: Box::new(|| vec![(WorkerId(1), LIFETIME)]),
            aged: BTreeMap::new(),
        };
        maintenance.age(Instant::now());
        [1, 2]
            .into_iter()
            .for_each(|worker| expect(&index, WorkerId(worker)));
        assert_eq!(index.stats().expected, 4);
        maintenance.age(Instant::now());
        assert_eq!(index.expected_workers(), [WorkerId(1)]);
        assert_eq!(index.stats().expected, 2);
    }
}
