//! Notes of the I/O thread for the feeds' thread: one queue a feed, and a bell that says which have something.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::task::AbortHandle;

use super::budget::{Allowance, Charge};
use crate::zmtp::{FRAME_COST, Fault};

/// What happened on the connections of one link, in order.
#[derive(Debug)]
pub(crate) enum Note {
    /// A connection stands. Whether another did before, and does still.
    Connected { beside: bool },
    /// A message came.
    Message(Received),
    /// A connection was closed for what the peer sent.
    Closed(Fault),
    /// The last connection is gone.
    Disconnected,
}

/// A message, and the memory it is charged for.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) charge: Charge,
}

/// Wakes the feeds' thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<Rung>,
    changed: Condvar,
}

/// Why the feeds' thread was woken.
#[derive(Debug, Default)]
pub(crate) struct Rung {
    /// Feeds that have notes, by the number they were opened with.
    pub(crate) feeds: BTreeSet<u64>,
    /// Orders were given.
    has_orders: bool,
    /// A feed waits for memory that all share.
    pub(crate) is_pressed: bool,
}

impl Bell {
    /// Wakes for a feed.
    pub(crate) fn ring(&self, feed: u64) {
        self.change(|rung| {
            rung.feeds.insert(feed);
        });
    }

    /// Wakes for orders.
    pub(crate) fn order(&self) {
        self.change(|rung| rung.has_orders = true);
    }

    /// Wakes for memory.
    pub(super) fn press(&self) {
        self.change(|rung| rung.is_pressed = true);
    }

    /// Waits for a reason to wake up, or until a time.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Rung {
        let mut rung = self.lock();
        while rung.feeds.is_empty() && !rung.has_orders && !rung.is_pressed {
            rung = match until {
                None => self.changed.wait(rung).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = self.changed.wait_timeout(rung, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        std::mem::take(&mut rung)
    }

    fn change(&self, change: impl FnOnce(&mut Rung)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Rung> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue between the connections of a link and its feed.
#[derive(Debug)]
pub(super) struct Mailbox {
    feed: u64,
    bell: Arc<Bell>,
    allowance: Allowance,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    queue: VecDeque<(Note, Charge)>,
    /// Connections that stand.
    open: usize,
}

impl Mailbox {
    pub(super) fn new(feed: u64, bell: Arc<Bell>, allowance: Allowance) -> Self {
        Self {
            feed,
            bell,
            allowance,
            notes: Mutex::default(),
        }
    }

    pub(super) fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Records that a connection stands.
    pub(super) async fn connected(&self) {
        let charge = self.allowance.take(FRAME_COST).await;
        self.push(charge, |notes| {
            notes.open += 1;
            Some(Note::Connected {
                beside: notes.open > 1,
            })
        });
    }

    /// Records that one is gone.
    pub(super) async fn disconnected(&self) {
        let charge = self.allowance.take(FRAME_COST).await;
        self.push(charge, |notes| {
            notes.open = notes.open.saturating_sub(1);
            (notes.open == 0).then_some(Note::Disconnected)
        });
    }

    /// Records that one was closed for a fault.
    pub(super) async fn closed(&self, fault: Fault) {
        let charge = self.allowance.take(FRAME_COST).await;
        self.push(charge, |_| Some(Note::Closed(fault)));
    }

    /// Passes on a message that is charged already.
    pub(super) fn message(&self, received: Received) {
        self.push(Charge::default(), |_| Some(Note::Message(received)));
    }

    fn push(&self, charge: Charge, note: impl FnOnce(&mut Notes) -> Option<Note>) {
        let mut notes = self.notes();
        let Some(note) = note(&mut notes) else { return };
        notes.queue.push_back((note, charge));
        let was_empty = notes.queue.len() == 1;
        drop(notes);
        if was_empty {
            self.bell.ring(self.feed);
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A feed's end of its connections, which are closed with it.
#[derive(Debug)]
pub(crate) struct Link {
    mailbox: Arc<Mailbox>,
    task: Option<AbortHandle>,
}

impl Link {
    pub(super) fn new(mailbox: Arc<Mailbox>, task: Option<AbortHandle>) -> Self {
        Self { mailbox, task }
    }

    /// Takes the next note.
    pub(crate) fn next(&self) -> Option<Note> {
        let next = self.mailbox.notes().queue.pop_front();
        next.map(|(note, _)| note)
    }

    /// Whether there are notes.
    pub(crate) fn has_notes(&self) -> bool {
        !self.mailbox.notes().queue.is_empty()
    }
}

impl Drop for Link {
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
    use crate::link::budget::Budget;
    use crate::zmtp::FeedLimits;

    fn mailbox() -> (Arc<Bell>, Link) {
        let bell = Arc::<Bell>::default();
        let limits = FeedLimits::default();
        let allowance = Budget::new(limits, Arc::clone(&bell)).allowance(limits);
        let mailbox = Arc::new(Mailbox::new(7, Arc::clone(&bell), allowance));
        let link = Link { mailbox, task: None };
        (bell, link)
    }

    #[tokio::test]
    async fn the_bell_names_the_feed_that_has_notes() {
        let (bell, link) = mailbox();
        link.mailbox.connected().await;
        link.mailbox.message(Received {
            frames: Vec::new(),
            charge: Charge::default(),
        });
        assert_eq!(bell.wait(None).feeds, BTreeSet::from([7]));
        assert!(bell.wait(Some(Instant::now())).feeds.is_empty());
        assert!(matches!(link.next(), Some(Note::Connected { beside: false })));
        assert!(matches!(link.next(), Some(Note::Message(_))));
        assert!(link.next().is_none());
    }

    #[tokio::test]
    async fn only_the_last_connection_that_goes_disconnects() {
        let (_, link) = mailbox();
        link.mailbox.connected().await;
        link.mailbox.connected().await;
        link.mailbox.disconnected().await;
        link.mailbox.disconnected().await;
        assert!(matches!(link.next(), Some(Note::Connected { beside: false })));
        assert!(matches!(link.next(), Some(Note::Connected { beside: true })));
        assert!(matches!(link.next(), Some(Note::Disconnected)));
        assert!(!link.has_notes());
    }
}
