//! Bounded channel from requests to the writer thread. Sending never blocks.

use std::io;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::message::Message;
use crate::metrics::RecordMetrics;
use crate::target::LogTarget;
use crate::writer::{LogIdentity, TargetFile, Writer};

/// Channel capacity in records.
const QUEUE: usize = 4096;
/// Time limit for the last lines at shutdown.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
/// Pause between attempts to send to a full channel at shutdown.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Sending side of one log. Without a configured file it sends nothing.
#[derive(Debug)]
pub(crate) struct LogSender {
    identity: LogIdentity,
    /// Set with the first configured file.
    queue: OnceLock<SyncSender<Message>>,
    target: Arc<TargetFile>,
    pub(crate) metrics: RecordMetrics,
}

/// Prepared change of the file. Dropping it ends the thread that it started.
#[derive(Debug)]
pub(crate) struct SenderPlan {
    file: Option<LogTarget>,
    /// Channel to a thread started for this plan.
    queue: Option<SyncSender<Message>>,
}

impl LogSender {
    /// Creates a sender without a file.
    pub(crate) fn new(identity: LogIdentity, metrics: RecordMetrics) -> Self {
        Self {
            identity,
            queue: OnceLock::new(),
            target: Arc::default(),
            metrics,
        }
    }

    /// Returns whether a file is configured.
    pub(crate) fn has_target(&self) -> bool {
        self.target.is_set()
    }

    /// Prepares a change of the file, and starts the writer thread with the first file.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(crate) fn plan(&self, file: Option<LogTarget>) -> io::Result<SenderPlan> {
        if file.is_none() || self.queue.get().is_some() {
            return Ok(SenderPlan { file, queue: None });
        }
        let (queue, records) = sync_channel(QUEUE);
        let (identity, target) = (self.identity.clone(), Arc::clone(&self.target));
        Writer::spawn(identity, records, target, self.metrics.clone())?;
        Ok(SenderPlan {
            file,
            queue: Some(queue),
        })
    }

    /// Applies a plan.
    pub(crate) fn apply(&self, SenderPlan { file, queue }: SenderPlan) {
        if let Some(queue) = queue {
            // Only one thread applies configurations. A second writer thread would end with its channel.
            let _ = self.queue.set(queue);
        }
        if self.target.change(file) {
            self.send(Message::TargetChanged);
        }
    }

    /// Flushes the channel. Blocks up to [`FLUSH_LIMIT`].
    pub(crate) fn close(&self) {
        let Some(queue) = self.queue.get() else { return };
        let (done, waiting) = sync_channel(1);
        let deadline = Instant::now() + FLUSH_LIMIT;
        let mut message = Message::Close(done);
        // The channel stays full if the file system hangs.
        while let Err(TrySendError::Full(back)) = queue.try_send(message) {
            if Instant::now() >= deadline {
                return;
            }
            message = back;
            std::thread::sleep(RETRY_PAUSE);
        }
        let _ = waiting.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }

    /// Sends a record. Counts it as dropped if the channel is full.
    pub(crate) fn send(&self, message: Message) {
        let is_record = !matches!(message, Message::TargetChanged);
        let sent = match self.queue.get() {
            Some(queue) => queue.try_send(message),
            None => Err(TrySendError::Disconnected(message)),
        };
        if is_record && sent.is_err() {
            self.metrics.no_room.inc();
        }
    }
}
