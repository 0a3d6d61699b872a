//! Exporter of traces: its queue, its collector, and their changes.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::registry::Registry;
use request_traces::{IdSource, QueueLimits, TraceQueue};
use thiserror::Error;

use crate::collector::{Collector, CollectorError, CollectorSpec};
use crate::export_thread::{CollectorCell, ExportThread};
use crate::metrics::ExportMetrics;

/// Time limit for the last traces at shutdown.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

/// Exporter of traces. Without a collector it sends nothing.
#[derive(Debug)]
pub struct TraceExporter {
    queue: Arc<TraceQueue>,
    ids: IdSource,
    collector: CollectorCell,
    metrics: ExportMetrics,
    /// Random name of the process in the resource.
    instance: Box<str>,
    /// Set once the thread runs. Disconnected when it has ended.
    ended: Mutex<Option<Receiver<()>>>,
}

/// Collector and limits of the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportSpec {
    /// The collector.
    pub collector: CollectorSpec,
    /// Limits of the queue.
    pub limits: QueueLimits,
}

/// Prepared change of the collector. Dropping it has no effect.
#[derive(Debug)]
pub struct ExportPlan {
    collector: Option<Arc<Collector>>,
    limits: QueueLimits,
}

/// Error of a change.
#[derive(Debug, Error)]
pub enum ExportPlanError {
    /// The collector cannot be used.
    #[error("prepare the collector of traces")]
    Collector(#[source] CollectorError),
    /// The thread could not be started.
    #[error("start the thread that exports traces")]
    Thread(#[source] io::Error),
}

impl TraceExporter {
    /// Creates an exporter without a collector.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Arc<Self> {
        let queue = Arc::<TraceQueue>::default();
        Arc::new(Self {
            metrics: ExportMetrics::register(registry, &queue),
            ids: IdSource::new([random(), random()]),
            collector: CollectorCell::default(),
            instance: format!("{:016x}", random()).into(),
            ended: Mutex::default(),
            queue,
        })
    }

    /// Returns the queue of traces.
    #[must_use]
    pub fn queue(&self) -> &Arc<TraceQueue> {
        &self.queue
    }

    /// Returns the source of ids.
    #[must_use]
    pub fn ids(&self) -> IdSource {
        self.ids
    }

    /// Prepares a change, and starts the thread with the first collector. Nothing is sent.
    ///
    /// # Errors
    /// [`ExportPlanError`].
    pub fn plan(&self, spec: Option<ExportSpec>) -> Result<ExportPlan, ExportPlanError> {
        let Some(ExportSpec { collector, limits }) = spec else {
            return Ok(ExportPlan {
                collector: None,
                limits: QueueLimits::default(),
            });
        };
        let kept = self.collector.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.clone().filter(|kept| kept.spec == collector);
        let collector = match kept {
            // Its connection is kept.
            Some(kept) => kept,
            None => Collector::new(collector, &self.instance)
                .map_err(ExportPlanError::Collector)?
                .into(),
        };
        let mut ended = self.ended();
        if ended.is_none() {
            let (queue, cell) = (Arc::clone(&self.queue), Arc::clone(&self.collector));
            let started = ExportThread::spawn(queue, cell, self.metrics.clone());
            *ended = Some(started.map_err(ExportPlanError::Thread)?);
        }
        Ok(ExportPlan {
            collector: Some(collector),
            limits,
        })
    }

    /// Applies a plan.
    pub fn apply(&self, ExportPlan { collector, limits }: ExportPlan) {
        *self.collector.lock().unwrap_or_else(PoisonError::into_inner) = collector;
        self.queue.configure(limits);
    }

    /// Sends the queued traces and ends. Blocks up to five seconds.
    pub fn close(&self) {
        self.queue.close();
        if let Some(ended) = self.ended().take() {
            // Nothing is ever sent: the thread's end disconnects it.
            let _ = ended.recv_timeout(FLUSH_LIMIT);
        }
    }

    fn ended(&self) -> MutexGuard<'_, Option<Receiver<()>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TraceExporter {
    fn drop(&mut self) {
        // Ends the thread.
        self.queue.close();
    }
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
