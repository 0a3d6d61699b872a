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

    /// Has a file written, or none, from now on.
    pub(super) fn write_to(&self, file: Option<FileSpec>) -> io::Result<()> {
        if !self.wish.change(file) {
            return Ok(());
        }
        if self.queue.get().is_none() {
            let (queue, records) = sync_channel(QUEUE);
            Writer::spawn(
                self.about.clone(),
                records,
                Arc::clone(&self.wish),
                self.metrics.clone(),
            )?;
            // Only one thread changes configurations; were there two, the second thread would end with its queue.
            let _ = self.queue.set(queue);
        }
        self.send(Message::Look);
        Ok(())
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
