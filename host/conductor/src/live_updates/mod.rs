//! Live updates: one task samples the fleet each second, for the history and for the viewers of `/admin/stream`.
//!
//! The sampler (`sampler.rs`) makes the events once for all viewers, and none without viewers. A page (`stream.rs`)
//! sends them. A new viewer wakes the sampler, whose next update then has full events too.

mod sampler;
mod stream;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use admin_views::{History, Topic};
use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, broadcast};
use tokio_util::sync::CancellationToken;

pub(crate) use self::sampler::{LiveSources, Sampler};
pub(crate) use self::stream::LivePages;

/// Streams at a time.
const STREAMS: usize = 32;
/// Updates that a slow viewer may lag behind before it gets full events again.
const LAG: usize = 4;

/// Meeting point of the sampler and the viewers.
#[derive(Debug)]
pub(crate) struct LiveHub {
    updates: broadcast::Sender<Arc<LiveUpdate>>,
    /// Wakes the sampler for a new viewer.
    newcomers: Notify,
    /// Set if the next update needs full events.
    wants_full: AtomicBool,
    streams: Arc<Semaphore>,
    history: Mutex<History>,
    /// Cancelled when the router begins to stop.
    shutdown: CancellationToken,
}

/// Events of one update, by topic.
#[derive(Debug)]
struct LiveUpdate {
    /// Events with everything, for new viewers.
    full: Option<TopicEvents>,
    /// Events with the differences from the update before.
    part: TopicEvents,
}

/// Event of each topic, in the order of [`Topic::ALL`]. `None` where there is nothing to send.
#[derive(Debug, Default)]
struct TopicEvents([Option<Bytes>; Topic::ALL.len()]);

impl LiveHub {
    pub(crate) fn new(shutdown: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            updates: broadcast::Sender::new(LAG),
            newcomers: Notify::new(),
            wants_full: AtomicBool::new(false),
            streams: Arc::new(Semaphore::new(STREAMS)),
            history: Mutex::default(),
            shutdown,
        })
    }

    /// Requests an update with full events.
    fn want_full(&self) {
        self.wants_full.store(true, Ordering::Release);
        self.newcomers.notify_one();
    }

    fn is_watched(&self) -> bool {
        self.updates.receiver_count() > 0
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TopicEvents {
    fn of(&self, topic: Topic) -> Option<&Bytes> {
        self.0[topic as usize].as_ref()
    }

    fn set(&mut self, topic: Topic, event: Option<Bytes>) {
        self.0[topic as usize] = event;
    }
}
