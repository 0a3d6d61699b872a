//! Mailboxes from the I/O thread to the feeds' thread: one queue per feed, and a notifier that
//! lists the feeds with notes.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::task::AbortHandle;

use super::budget::{FeedBudget, MemoryCharge};
use crate::zmtp::{FRAME_COST, Fault};

/// Event on a link's connections; notes are in order.
#[derive(Debug)]
pub(crate) enum LinkNote {
    /// The first attempt to connect has failed.
    NotReached,
    /// A connection is established. `beside`: another one already was.
    Connected { beside: bool },
    /// A message was received.
    Message(ReceivedMessage),
    /// A connection was closed for a protocol error.
    Closed(Fault),
    /// The last connection is closed.
    Disconnected,
}

/// A message, and the memory it is charged for.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) charge: MemoryCharge,
}

/// Notifier of the feeds' thread.
#[derive(Debug, Default)]
pub(crate) struct FeedNotifier {
    woken: Mutex<WakeReasons>,
    changed: Condvar,
}

/// Reasons of a wake-up.
#[derive(Debug, Default)]
pub(crate) struct WakeReasons {
    /// Feeds with notes, by number.
    pub(crate) feeds: BTreeSet<u64>,
    /// Commands were given.
    has_commands: bool,
    /// A feed waits for shared memory.
    pub(crate) is_pressed: bool,
}

impl FeedNotifier {
    /// Wakes the thread for a feed.
    pub(crate) fn notify_feed(&self, feed: u64) {
        self.change(|woken| {
            woken.feeds.insert(feed);
        });
    }

    /// Wakes the thread for commands.
    pub(crate) fn notify_commands(&self) {
        self.change(|woken| woken.has_commands = true);
    }

    /// Wakes the thread to release memory.
    pub(super) fn notify_memory(&self) {
        self.change(|woken| woken.is_pressed = true);
    }

    /// Waits for a reason to wake up, or until a deadline.
    pub(crate) fn wait(&self, until: Option<Instant>) -> WakeReasons {
        let mut woken = self.lock();
        while woken.feeds.is_empty() && !woken.has_commands && !woken.is_pressed {
            woken = match until {
                None => self.changed.wait(woken).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = self.changed.wait_timeout(woken, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        std::mem::take(&mut woken)
    }

    fn change(&self, change: impl FnOnce(&mut WakeReasons)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, WakeReasons> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Queue between the connections of a link and its feed.
#[derive(Debug)]
pub(super) struct FeedMailbox {
    feed: u64,
    notifier: Arc<FeedNotifier>,
    allowance: FeedBudget,
    notes: Mutex<NoteQueue>,
}

#[derive(Debug, Default)]
struct NoteQueue {
    queue: VecDeque<(LinkNote, MemoryCharge)>,
    /// Number of established connections.
    open: usize,
}

impl FeedMailbox {
    pub(super) fn new(feed: u64, notifier: Arc<FeedNotifier>, allowance: FeedBudget) -> Self {
        Self {
            feed,
            notifier,
            allowance,
            notes: Mutex::default(),
        }
    }

    pub(super) fn allowance(&self) -> &FeedBudget {
        &self.allowance
    }

    /// Records that an attempt to connect has failed, once in the life of a link.
    pub(super) fn not_reached(&self) {
        self.push(MemoryCharge::default(), |_| Some(LinkNote::NotReached));
    }

    /// Records an established connection.
    pub(super) async fn connected(&self) {
        let charge = self.allowance.take(FRAME_COST).await;
        self.push(charge, |notes| {
            notes.open += 1;
            Some(LinkNote::Connected {
                beside: notes.open > 1,
            })
        });
    }

    /// Records a closed connection.
    pub(super) async fn disconnected(&self) {
        let charge = self.allowance.take(FRAME_COST).await;
        self.push(charge, |notes| {
            notes.open = notes.open.saturating_sub(1);
            (notes.open == 0).then_some(LinkNote::Disconnected)
        });
    }

    /// Records a connection closed for a fault.
    pub(super) async fn closed(&self, fault: Fault) {
        let charge = self.allowance.take(FRAME_COST).await;
        self.push(charge, |_| Some(LinkNote::Closed(fault)));
    }

    /// Queues a message whose memory is reserved.
    pub(super) fn message(&self, received: ReceivedMessage) {
        self.push(MemoryCharge::default(), |_| Some(LinkNote::Message(received)));
    }

    fn push(&self, charge: MemoryCharge, note: impl FnOnce(&mut NoteQueue) -> Option<LinkNote>) {
        let mut notes = self.notes();
        let Some(note) = note(&mut notes) else { return };
        notes.queue.push_back((note, charge));
        let was_empty = notes.queue.len() == 1;
        drop(notes);
        if was_empty {
            self.notifier.notify_feed(self.feed);
        }
    }

    fn notes(&self) -> MutexGuard<'_, NoteQueue> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A feed's end of its connections, which are closed with it.
#[derive(Debug)]
pub(crate) struct FeedLink {
    mailbox: Arc<FeedMailbox>,
    task: Option<AbortHandle>,
}

impl FeedLink {
    pub(super) fn new(mailbox: Arc<FeedMailbox>, task: Option<AbortHandle>) -> Self {
        Self { mailbox, task }
    }

    /// Returns the next note.
    pub(crate) fn next(&self) -> Option<LinkNote> {
        let next = self.mailbox.notes().queue.pop_front();
        next.map(|(note, _)| note)
    }

    /// Returns `true` if there are notes.
    pub(crate) fn has_notes(&self) -> bool {
        !self.mailbox.notes().queue.is_empty()
    }
}

impl Drop for FeedLink {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        self.mailbox.notes().queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::budget::MemoryBudget;
    use crate::zmtp::FeedLimits;

    fn mailbox() -> (Arc<FeedNotifier>, FeedLink) {
        let notifier = Arc::<FeedNotifier>::default();
        let limits = FeedLimits::default();
        let allowance = MemoryBudget::new(limits, Arc::clone(&notifier)).allowance(limits);
        let mailbox = Arc::new(FeedMailbox::new(7, Arc::clone(&notifier), allowance));
        let link = FeedLink { mailbox, task: None };
        (notifier, link)
    }

    #[tokio::test]
    async fn the_wake_reasons_name_the_feed_that_has_notes() {
        let (notifier, link) = mailbox();
        link.mailbox.connected().await;
        link.mailbox.message(ReceivedMessage {
            frames: Vec::new(),
            charge: MemoryCharge::default(),
        });
        assert_eq!(notifier.wait(None).feeds, BTreeSet::from([7]));
        assert!(notifier.wait(Some(Instant::now())).feeds.is_empty());
        assert!(matches!(link.next(), Some(LinkNote::Connected { beside: false })));
        assert!(matches!(link.next(), Some(LinkNote::Message(_))));
        assert!(link.next().is_none());
    }

    #[tokio::test]
    async fn only_the_last_connection_that_goes_disconnects() {
        let (_, link) = mailbox();
        link.mailbox.connected().await;
        link.mailbox.connected().await;
        link.mailbox.disconnected().await;
        link.mailbox.disconnected().await;
        assert!(matches!(link.next(), Some(LinkNote::Connected { beside: false })));
        assert!(matches!(link.next(), Some(LinkNote::Connected { beside: true })));
        assert!(matches!(link.next(), Some(LinkNote::Disconnected)));
        assert!(!link.has_notes());
    }
}
