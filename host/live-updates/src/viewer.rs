//! Viewer of the live updates: the chunks of its event stream.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use admin_views::Topic;
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use crate::hub::{LiveHub, LiveUpdate};

/// Longest silence of a stream.
const SILENCE: Duration = Duration::from_secs(15);
/// Start of a stream: pause before the client reconnects, in milliseconds.
const START: Bytes = Bytes::from_static(b"retry: 2000\n\n");
/// Comment that ends a silence.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// Viewer of a stream. It keeps its seat until it is dropped.
#[derive(Debug)]
pub struct Viewer {
    hub: Arc<LiveHub>,
    topics: Vec<Topic>,
    updates: Receiver<Arc<LiveUpdate>>,
    pending: VecDeque<Bytes>,
    /// Set once the viewer has got full events.
    has_full: bool,
    _seat: OwnedSemaphorePermit,
}

impl Viewer {
    pub(crate) fn new(hub: Arc<LiveHub>, topics: Vec<Topic>, seat: OwnedSemaphorePermit) -> Self {
        Self {
            updates: hub.updates.subscribe(),
            hub,
            topics,
            pending: VecDeque::from([START]),
            has_full: false,
            _seat: seat,
        }
    }

    /// Returns the chunks of its stream, which ends when `is_allowed` returns `false`.
    pub fn into_stream(
        self,
        is_allowed: impl Fn() -> bool + Send,
    ) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
        stream::unfold((self, is_allowed), |(mut viewer, is_allowed)| async move {
            let chunk = viewer.next().await?;
            is_allowed().then_some((Ok(chunk), (viewer, is_allowed)))
        })
    }

    /// Returns the next chunk, or `None` when the router begins to stop.
    pub async fn next(&mut self) -> Option<Bytes> {
        let hub = Arc::clone(&self.hub);
        loop {
            if hub.shutdown.is_cancelled() {
                return None;
            }
            if let Some(chunk) = self.pending.pop_front() {
                return Some(chunk);
            }
            let update = tokio::select! {
                () = hub.shutdown.cancelled() => return None,
                update = timeout(SILENCE, self.updates.recv()) => update,
            };
            match update {
                Err(_) => return Some(COMMENT),
                Ok(Ok(update)) => self.take(&update),
                Ok(Err(RecvError::Lagged(_))) => {
                    self.has_full = false;
                    hub.request_full();
                }
                Ok(Err(RecvError::Closed)) => return None,
            }
        }
    }

    /// Queues the events of an update. Until the full ones have come, others are left out.
    fn take(&mut self, update: &LiveUpdate) {
        let events = match &update.full {
            Some(full) if !self.has_full => full,
            _ if !self.has_full => return,
            _ => &update.part,
        };
        self.has_full = true;
        let topics = self.topics.iter();
        self.pending
            .extend(topics.filter_map(|topic| events.of(*topic)).cloned());
    }
}
