//! What the index needs done when nothing happens to it: forgetting what was expected in vain, and giving back memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kv_index::SharedPrefixIndex;
use proxy::Proxy;
use routing::WorkerId;
use tokio_util::sync::CancellationToken;

/// How often the thread looks.
const PACE: Duration = Duration::from_millis(100);
/// Steps of reclaiming at a time, each of some microseconds.
const STEPS: usize = 512;

/// The thread's work.
pub(crate) struct Upkeep {
    index: Arc<SharedPrefixIndex>,
    proxy: Arc<Proxy>,
    /// When blocks of each lifetime were aged last.
    aged: BTreeMap<Duration, Instant>,
    /// The fleet as it was then.
    workers: BTreeSet<WorkerId>,
}

impl Upkeep {
    /// Starts the thread, which ends soon after `stop` is cancelled, and at once when it is unparked then.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(crate) fn spawn(
        index: Arc<SharedPrefixIndex>,
        proxy: Arc<Proxy>,
        stop: CancellationToken,
    ) -> io::Result<JoinHandle<()>> {
        let mut upkeep = Self {
            index,
            proxy,
            aged: BTreeMap::new(),
            workers: BTreeSet::new(),
        };
        let name = std::thread::Builder::new().name("index-upkeep".into());
        name.spawn(move || {
            while !stop.is_cancelled() {
                upkeep.age(Instant::now());
                // One step after the other, so that whoever asks or tells the index something comes in between.
                (0..STEPS).find(|_| !upkeep.index.gc_step());
                std::thread::park_timeout(PACE);
            }
        })
    }

    /// Ages what is expected of the workers whose lifetime has passed once more.
    fn age(&mut self, now: Instant) {
        let mut due: BTreeMap<Duration, Vec<WorkerId>> = BTreeMap::new();
        let expectations = self.proxy.expectations();
        let workers: BTreeSet<WorkerId> = expectations.iter().map(|&(worker, _)| worker).collect();
        // Of workers that left nothing is expected; both generations go.
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
