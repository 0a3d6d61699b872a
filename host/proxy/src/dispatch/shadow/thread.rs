//! Bounded queue of requests for shadows, and the thread that serves it. No request ever waits for it.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::captured::{CapturedPlacement, DecidedPlacement};
use super::{QUEUE, QUEUED_BYTES, decide};
use crate::dispatch::router_view::RouterView;
use crate::dispatch::sources::DecisionSources;

/// Lower priority than that of the serving threads. Where the machine is busy, this thread has a third of the time of
/// one of those.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// Queue of requests for the shadows.
#[derive(Debug)]
pub(crate) struct ShadowQueue {
    queue: SyncSender<CapturedPlacement>,
    /// Receiver of the channel, until the thread takes it.
    end: Mutex<Option<Receiver<CapturedPlacement>>>,
    /// Number of requests in the queue.
    waiting: AtomicUsize,
    /// Total size of their bodies.
    bytes: AtomicUsize,
}

impl Default for ShadowQueue {
    fn default() -> Self {
        let (queue, end) = sync_channel(QUEUE);
        Self {
            queue,
            end: Mutex::new(Some(end)),
            waiting: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }
}

impl ShadowQueue {
    /// Captures a request that was just placed, if its route has shadows and it is in their share.
    pub(crate) fn offer(&self, view: &RouterView<'_>, decided: &DecidedPlacement<'_>) {
        let request = view.request;
        let shadows = request.policies.at_arrival().shadows.as_ref();
        let Some(shadows) = shadows.filter(|shadows| shadows.take(request.seed())) else {
            return;
        };
        // Nothing is copied if the queue is full.
        let is_queued = self.has_room(request.body.len()) && self.push(CapturedPlacement::new(view, decided));
        if !is_queued {
            shadows.dropped();
        }
    }

    /// Returns `true` if a request with a body of that size may wait as well.
    fn has_room(&self, body: usize) -> bool {
        let bytes = self.bytes.load(Ordering::Relaxed).saturating_add(body);
        self.waiting.load(Ordering::Relaxed) < QUEUE && bytes <= QUEUED_BYTES
    }

    /// Adds a captured placement. Returns `true` if there was room.
    fn push(&self, captured: CapturedPlacement) -> bool {
        let body = captured.request.body.len();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(body, Ordering::Relaxed);
        match self.queue.try_send(captured) {
            Ok(()) => true,
            Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => {
                self.left(&back);
                false
            }
        }
    }

    fn left(&self, captured: &CapturedPlacement) {
        let body = captured.request.body.len();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(body, Ordering::Relaxed);
    }

    fn end(&self) -> Option<Receiver<CapturedPlacement>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ShadowQueue {
    /// Starts the shadow thread. The thread ends when the sources are dropped.
    pub(crate) fn start(self: &Arc<Self>, sources: Weak<DecisionSources>) -> io::Result<()> {
        let Some(end) = self.end() else {
            return Ok(());
        };
        let queue = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("shadows".into());
        thread.spawn(move || run(&queue, &sources, &end)).map(drop)
    }
}

fn run(queue: &Weak<ShadowQueue>, sources: &Weak<DecisionSources>, end: &Receiver<CapturedPlacement>) {
    // Elsewhere that would be the priority of the whole process.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, NICENESS);
    while let Ok(captured) = end.recv() {
        let (Some(queue), Some(sources)) = (queue.upgrade(), sources.upgrade()) else {
            return;
        };
        queue.left(&captured);
        decide::all(&sources, &captured);
    }
}
