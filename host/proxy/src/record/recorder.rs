//! Where records go: the list of the latest in memory, and the queue to the thread that writes.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;

use super::call_note::CallNote;
use super::explained::Explained;
use super::file::FileSpec;
use super::metrics::RecordMetrics;
use super::room::{Room, Taken};
use super::trace::{Record, Trace};
use super::writer::{Message, Wish, Writer};

/// Most records on their way to the file.
const QUEUE: usize = 4096;
/// Memory of all records, in bytes, in the queue and in the list.
const MEMORY: usize = 64 << 20;
/// How long the last lines may take to be written.
const LAST_LINES: Duration = Duration::from_secs(5);
/// How long to wait for room in a full queue before the next look.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Keeps the latest records and writes a file of them. One for as long as the router runs.
#[derive(Debug)]
pub struct Recorder {
    latest: Mutex<VecDeque<Arc<Trace>>>,
    room: Arc<Room>,
    /// Once a file was wished for.
    queue: OnceLock<SyncSender<Message>>,
    wish: Arc<Wish>,
    metrics: RecordMetrics,
}

impl Recorder {
    /// A recorder without a file, with its metrics registered.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Arc<Self> {
        Arc::new(Self {
            latest: Mutex::default(),
            room: Room::of(MEMORY),
            queue: OnceLock::new(),
            wish: Arc::default(),
            metrics: RecordMetrics::register(registry),
        })
    }

    /// Has records written to a file, or to none, from now on. A file that cannot be written is logged, and tried again.
    ///
    /// # Errors
    /// Where the system gives no thread; then nothing is written.
    pub fn write_to(&self, file: Option<FileSpec>) -> io::Result<()> {
        if !self.wish.change(file) {
            return Ok(());
        }
        if self.queue.get().is_none() {
            let (queue, records) = sync_channel(QUEUE);
            Writer::spawn(records, Arc::clone(&self.wish), self.metrics.clone())?;
            // Only one thread changes configurations; were there two, the second thread would end with its queue.
            let _ = self.queue.set(queue);
        }
        self.send(Message::Look);
        Ok(())
    }

    /// Writes what is on its way. Blocks until then, but not for long.
    pub fn close(&self) {
        let Some(queue) = self.queue.get() else { return };
        let (done, waiting) = sync_channel(1);
        let deadline = Instant::now() + LAST_LINES;
        let mut message = Message::Close(done);
        // A writer that hangs, on a file system that does, leaves the queue full.
        while let Err(TrySendError::Full(back)) = queue.try_send(message) {
            if Instant::now() >= deadline {
                return;
            }
            message = back;
            std::thread::sleep(LOOK_AGAIN);
        }
        let _ = waiting.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }

    /// The latest request of that id, if it was kept.
    #[must_use]
    pub fn explain(&self, id: &str) -> Option<Explained> {
        let trace = {
            let latest = self.latest();
            let mut newest_first = latest.iter().rev();
            newest_first.find(|trace| trace.id == id).cloned()
        };
        trace.map(|trace| Explained::of(&trace))
    }

    /// Forgets all but the latest so many.
    pub fn keep_latest(&self, most: usize) {
        let mut latest = self.latest();
        let surplus = latest.len().saturating_sub(most);
        let gone: Vec<_> = latest.drain(..surplus).collect();
        drop(latest);
        drop(gone);
    }

    /// Keeps a request in memory, as one of so many.
    pub(super) fn remember(&self, trace: &Arc<Trace>, most: usize) {
        self.latest().push_back(Arc::clone(trace));
        self.keep_latest(most);
    }

    /// Memory for a call. Where there is none left, the oldest quarter of the list makes room.
    pub(super) fn room_for(&self, call: &CallNote) -> Option<Taken> {
        let bytes = call.bytes();
        let taken = self.room.take(bytes).or_else(|| {
            let gone: Vec<_> = {
                let mut latest = self.latest();
                let oldest = latest.len().div_ceil(4);
                latest.drain(..oldest).collect()
            };
            drop(gone);
            self.room.take(bytes)
        });
        if taken.is_none() {
            self.metrics.no_room.inc();
        }
        taken
    }

    pub(super) fn write_call(&self, trace: &Arc<Trace>, record: Arc<Record>) {
        self.send(Message::Call(Arc::clone(trace), record));
    }

    pub(super) fn write_outcome(&self, trace: &Arc<Trace>) {
        self.send(Message::Outcome(Arc::clone(trace)));
    }

    fn send(&self, message: Message) {
        let is_record = !matches!(message, Message::Look);
        let sent = match self.queue.get() {
            Some(queue) => queue.try_send(message),
            None => Err(TrySendError::Disconnected(message)),
        };
        if is_record && sent.is_err() {
            self.metrics.no_room.inc();
        }
    }

    fn latest(&self) -> MutexGuard<'_, VecDeque<Arc<Trace>>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
