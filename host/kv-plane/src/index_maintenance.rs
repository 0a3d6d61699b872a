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

/// Expected blocks of each worker and their lifetime.
type Expectations = Box<dyn Fn() -> Vec<(WorkerId, Duration)> + Send>;

/// Work of the maintenance thread.
pub struct IndexMaintenance {
    index: Arc<SharedPrefixIndex>,
    expectations: Expectations,
    /// Last ageing of the blocks of each lifetime.
    aged: BTreeMap<Duration, Instant>,
    /// Workers of the last ageing.
    workers: BTreeSet<WorkerId>,
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
            workers: BTreeSet::new(),
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
        let expectations = (self.expectations)();
        let workers: BTreeSet<WorkerId> = expectations.iter().map(|&(worker, _)| worker).collect();
        // Workers that left have no expected blocks: both generations go.
        let gone: Vec<WorkerId> = self.workers.difference(&workers).copied().collect();
        self.index.age_expected(&gone);
        self.index.age_expected(&gone);
        self.workers = workers;
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
