//! Meeting point of the sampler and the viewers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use admin_views::{History, Topic};
use bytes::Bytes;
use thiserror::Error;
use tokio::sync::{Mutex as AsyncMutex, Notify, Semaphore, broadcast};
use tokio_util::sync::CancellationToken;

use crate::viewer::Viewer;

/// Streams at a time.
pub const STREAMS: usize = 32;
/// Updates that a slow viewer may lag behind before it gets full events again.
const LAG: usize = 4;

/// Meeting point of the sampler and the viewers.
#[derive(Debug)]
pub struct LiveHub {
    pub(crate) updates: broadcast::Sender<Arc<LiveUpdate>>,
    /// Wakes the sampler for a new viewer.
    pub(crate) newcomers: Notify,
    /// Set if the next update needs full events.
    needs_full: AtomicBool,
    streams: Arc<Semaphore>,
    history: Mutex<History>,
    history_page: AsyncMutex<HistoryJson>,
    /// Cancelled when the router begins to stop.
    pub(crate) shutdown: CancellationToken,
}

/// Refusal of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RefusedStream {
    /// The router stops.
    #[error("the router stops")]
    Stopping,
    /// There are too many streams.
    #[error("there are {STREAMS} streams already: close one, or try again")]
    TooMany,
}

/// Page of the history, made once for all readers of a second.
#[derive(Debug, Default)]
struct HistoryJson {
    /// Time of the newest sample of the page.
    newest: Option<f64>,
    json: Bytes,
}

/// Events of one update, by topic.
#[derive(Debug)]
pub(crate) struct LiveUpdate {
    /// Events with everything, for new viewers.
    pub(crate) full: Option<TopicEvents>,
    /// Events with the differences from the update before.
    pub(crate) part: TopicEvents,
}

/// Event of each topic, in the order of [`Topic::ALL`]. `None` where there is nothing to send.
#[derive(Debug, Default)]
pub(crate) struct TopicEvents([Option<Bytes>; Topic::ALL.len()]);

impl LiveHub {
    /// Creates a hub whose streams end when `shutdown` is cancelled.
    #[must_use]
    pub fn new(shutdown: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            updates: broadcast::Sender::new(LAG),
            newcomers: Notify::new(),
            needs_full: AtomicBool::new(false),
            streams: Arc::new(Semaphore::new(STREAMS)),
            history: Mutex::default(),
            history_page: AsyncMutex::default(),
            shutdown,
        })
    }

    /// Starts the stream of a viewer of some topics.
    ///
    /// # Errors
    /// [`RefusedStream`].
    pub fn viewer(self: &Arc<Self>, topics: Vec<Topic>) -> Result<Viewer, RefusedStream> {
        if self.shutdown.is_cancelled() {
            return Err(RefusedStream::Stopping);
        }
        let seat = Arc::clone(&self.streams).try_acquire_owned();
        let seat = seat.map_err(|_| RefusedStream::TooMany)?;
        let viewer = Viewer::new(Arc::clone(self), topics, seat);
        self.request_full();
        Ok(viewer)
    }

    /// Returns the history as JSON. It is made off the threads that serve, one page at a time. `None` at a shutdown.
    pub async fn history_json(&self) -> Option<Bytes> {
        let mut page = self.history_page.lock().await;
        let history = self.history().clone();
        let newest = history.newest();
        if page.json.is_empty() || page.newest != newest {
            let made = tokio::task::spawn_blocking(move || serde_json::to_vec(&history.page())).await;
            page.json = made.ok()?.ok()?.into();
            page.newest = newest;
        }
        Some(page.json.clone())
    }

    /// Requests an update with full events.
    pub(crate) fn request_full(&self) {
        self.needs_full.store(true, Ordering::Release);
        self.newcomers.notify_one();
    }

    /// Returns `true` if the next update needs full events.
    pub(crate) fn needs_full(&self) -> bool {
        self.needs_full.load(Ordering::Acquire)
    }

    /// Returns `true` if the next update needs full events, and clears the request.
    pub(crate) fn take_full_request(&self) -> bool {
        self.needs_full.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.updates.receiver_count() > 0
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TopicEvents {
    pub(crate) fn of(&self, topic: Topic) -> Option<&Bytes> {
        self.0[topic as usize].as_ref()
    }

    pub(crate) fn set(&mut self, topic: Topic, event: Option<Bytes>) {
        self.0[topic as usize] = event;
    }
}
