//! Thread that exports: takes batches from the queue, and posts each until it is accepted or given up.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use request_traces::{QueuedTrace, TraceQueue};
use tokio::runtime::Runtime;
use tracing::{info, warn};

use crate::batch;
use crate::collector::Collector;
use crate::metrics::ExportMetrics;
use crate::retry::{MOST_POSTS, Reply, pause};

/// Cell of the collector, which a reload replaces.
pub(crate) type CollectorCell = Arc<Mutex<Option<Arc<Collector>>>>;

/// State of the thread.
pub(crate) struct ExportThread {
    queue: Arc<TraceQueue>,
    collector: CollectorCell,
    metrics: ExportMetrics,
    runtime: Runtime,
    /// Set while the collector does not accept traces, which is logged once.
    is_failing: bool,
    /// Set once a partial rejection was logged.
    has_logged_part: bool,
    /// Dropped with the thread, which ends the wait of a shutdown.
    _done: SyncSender<()>,
}

/// Result of one post.
enum PostResult {
    Sent,
    Refused,
    Again(Option<Duration>),
}

impl ExportThread {
    /// Starts the thread, which ends when the queue is closed and empty. The receiver is disconnected then.
    ///
    /// # Errors
    /// The thread or its runtime could not be started.
    pub(crate) fn spawn(
        queue: Arc<TraceQueue>,
        collector: CollectorCell,
        metrics: ExportMetrics,
    ) -> io::Result<Receiver<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (done, ended) = sync_channel(1);
        let mut thread = Self {
            queue,
            collector,
            metrics,
            runtime,
            is_failing: false,
            has_logged_part: false,
            _done: done,
        };
        let builder = std::thread::Builder::new().name("traces".into());
        builder.spawn(move || thread.run())?;
        Ok(ended)
    }

    fn run(&mut self) {
        loop {
            let batch = self.queue.next();
            if !batch.traces.is_empty() {
                self.export(&batch.traces);
            }
            if batch.is_last {
                return;
            }
        }
    }

    fn export(&mut self, traces: &[QueuedTrace]) {
        let counts = Arc::clone(&self.metrics.counts);
        let count = |counter: &AtomicU64| {
            counter.fetch_add(traces.len() as u64, Ordering::Relaxed);
        };
        for post in 1..=MOST_POSTS {
            // A reload may have replaced it meanwhile.
            let collector = self
                .collector
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            let Some(collector) = collector else { break };
            let body = batch::encode(traces, &collector.resource);
            match self.post(&collector, body) {
                PostResult::Sent => return count(&counts.sent),
                PostResult::Refused => return count(&counts.refused),
                PostResult::Again(after) => {
                    let wait = after.unwrap_or_else(|| pause(post));
                    if post == MOST_POSTS || self.queue.closes_within(wait) {
                        break;
                    }
                }
            }
        }
        count(&counts.failed);
    }

    fn post(&mut self, collector: &Collector, body: Bytes) -> PostResult {
        let body = match collector.spec.gzip {
            true => batch::compress(&body).unwrap_or(body),
            false => body,
        };
        let started = Instant::now();
        let reply = self.runtime.block_on(collector.post(body));
        self.metrics.post_time.observe(started.elapsed().as_secs_f64());
        let endpoint = &*collector.spec.endpoint;
        let was_failing = std::mem::replace(&mut self.is_failing, !matches!(reply, Ok(Reply::Accepted(_))));
        match reply {
            Ok(Reply::Accepted(part)) => {
                if was_failing {
                    info!(endpoint, "the collector accepts traces again");
                }
                if let Some(part) = part.filter(|_| !std::mem::replace(&mut self.has_logged_part, true)) {
                    warn!(endpoint, part, "the collector rejected a part of the traces");
                }
                PostResult::Sent
            }
            Ok(Reply::Retry(after)) => {
                if !was_failing {
                    warn!(
                        endpoint,
                        "the collector is overloaded; traces are sent again, and then dropped"
                    );
                }
                PostResult::Again(after)
            }
            Ok(Reply::Refused(status)) => {
                if !was_failing {
                    warn!(
                        endpoint,
                        status = status.as_u16(),
                        "the collector refused traces; they are dropped"
                    );
                }
                PostResult::Refused
            }
            Err(error) => {
                if !was_failing {
                    let error = &error as &dyn std::error::Error;
                    warn!(
                        endpoint,
                        error, "failed to send traces; they are sent again, and then dropped"
                    );
                }
                PostResult::Again(None)
            }
        }
    }
}
