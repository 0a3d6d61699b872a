//! The way from requests to a thread that writes a file, which nobody ever waits for.

use std::io;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::file::FileSpec;
use super::metrics::RecordMetrics;
use super::writer::{About, Message, Wish, Writer};

/// Most records on their way to the file.
const QUEUE: usize = 4096;
/// How long the last lines may take to be written.
const LAST_LINES: Duration = Duration::from_secs(5);
/// How long to wait for room in a full queue before the next look.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// One file of lines, or none.
#[derive(Debug)]
pub(super) struct Outlet {
    about: About,
    /// Once a file was wished for.
    queue: OnceLock<SyncSender<Message>>,
    wish: Arc<Wish>,
    pub(super) metrics: RecordMetrics,
}

/// What an outlet is to write. Dropping it ends the thread that it started.
#[derive(Debug)]
pub(super) struct OutletPlan {
    file: Option<FileSpec>,
    /// To the thread that was started for the file.
    queue: Option<SyncSender<Message>>,
}

impl Outlet {
    /// Without a file.
    pub(super) fn new(about: About, metrics: RecordMetrics) -> Self {
        Self {
            about,
            queue: OnceLock::new(),
            wish: Arc::default(),
            metrics,
        }
    }

    /// Whether there is a file to write.
    pub(super) fn is_wished(&self) -> bool {
        self.wish.is_any()
    }

    /// Starts the thread that a file needs, where none runs yet.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(super) fn plan(&self, file: Option<FileSpec>) -> io::Result<OutletPlan> {
        if file.is_none() || self.queue.get().is_some() {
            return Ok(OutletPlan { file, queue: None });
        }
        let (queue, records) = sync_channel(QUEUE);
        let (about, wish) = (self.about.clone(), Arc::clone(&self.wish));
        Writer::spawn(about, records, wish, self.metrics.clone())?;
        Ok(OutletPlan {
            file,
            queue: Some(queue),
        })
    }

    /// Writes the planned file, or none, from now on.
    pub(super) fn apply(&self, OutletPlan { file, queue }: OutletPlan) {
        if let Some(queue) = queue {
            // Only one thread changes configurations; were there two, the second thread would end with its queue.
            let _ = self.queue.set(queue);
        }
        if self.wish.change(file) {
            self.send(Message::Look);
        }
    }

    /// Writes what is on its way. Blocks until then, but not for long.
    pub(super) fn close(&self) {
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

    /// Hands a record over; one for which there is no room is counted.
    pub(super) fn send(&self, message: Message) {
        let is_record = !matches!(message, Message::Look);
        let sent = match self.queue.get() {
            Some(queue) => queue.try_send(message),
            None => Err(TrySendError::Disconnected(message)),
        };
        if is_record && sent.is_err() {
            self.metrics.no_room.inc();
        }
    }
}
