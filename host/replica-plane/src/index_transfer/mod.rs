//! Transfer of the index between routers: a router that starts takes over what others know of the workers' caches.
//!
//! The design is in `host/adr/0042-index-from-a-router.md`.

mod fetcher;
mod metrics;
mod task;

use replicas::{FeedKey, RefusalReason, TransferError};
use tokio::sync::oneshot;

pub use self::metrics::TransferMetrics;
pub use self::task::{IndexTransfer, TransferParts};

/// A feed whose contents are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedFeed {
    /// Feed.
    pub feed: FeedKey,
    /// Number of the oldest message of its publisher that this router has.
    pub known_from: Option<u64>,
}

/// The index of this router, by its feeds.
pub trait IndexContents: Send + 'static {
    /// Returns whether the start still waits for contents.
    fn is_open(&self) -> bool;

    /// Ends the wait for contents.
    fn close(&self);

    /// Returns the feeds whose contents are wanted and that are not settled.
    fn wanted(&self) -> Vec<WantedFeed>;

    /// Ends the wait for the contents of one feed.
    fn settle(&self, feed: FeedKey);

    /// Reads the contents of a feed, as bytes. If they cannot be read, the channel may end without them.
    fn export(
        &self,
        feed: FeedKey,
        known_from: Option<u64>,
    ) -> oneshot::Receiver<Result<Vec<u8>, RefusalReason>>;

    /// Takes over the contents of a feed. The answer is whether they were of use.
    ///
    /// # Errors
    /// [`TransferError`] for unreadable contents.
    fn seed(&self, feed: FeedKey, bytes: &[u8]) -> Result<oneshot::Receiver<bool>, TransferError>;
}
