//! Metrics of the export.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use observability::MetricPage;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use request_traces::TraceQueue;

/// Bounds of the time of a post, in seconds.
const POST_TIMES: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0];

/// Counters of the exporter's thread.
#[derive(Debug, Clone)]
pub(crate) struct ExportMetrics {
    pub(crate) counts: Arc<ExportCounts>,
    /// Time of each post.
    pub(crate) post_time: Histogram,
}

/// Numbers of traces by their end.
#[derive(Debug, Default)]
pub(crate) struct ExportCounts {
    /// Accepted by the collector.
    pub(crate) sent: AtomicU64,
    /// Refused by the collector.
    pub(crate) refused: AtomicU64,
    /// Not accepted after the last try.
    pub(crate) failed: AtomicU64,
}

/// Reader of the numbers at scrape time.
#[derive(Debug)]
struct TraceCollector {
    counts: Arc<ExportCounts>,
    queue: Arc<TraceQueue>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

impl ExportMetrics {
    pub(crate) fn register(registry: &mut Registry, queue: &Arc<TraceQueue>) -> Self {
        let metrics = Self {
            counts: Arc::default(),
            post_time: Histogram::new(POST_TIMES),
        };
        registry.register_with_unit(
            "conductor_traces_export",
            "Time of one post of traces to the collector",
            Unit::Seconds,
            metrics.post_time.clone(),
        );
        registry.register_collector(Box::new(TraceCollector {
            counts: Arc::clone(&metrics.counts),
            queue: Arc::clone(queue),
        }));
        metrics
    }
}

impl Collector for TraceCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = [
            ("sent", self.counts.sent.load(Ordering::Relaxed)),
            ("refused", self.counts.refused.load(Ordering::Relaxed)),
            ("failed", self.counts.failed.load(Ordering::Relaxed)),
            ("dropped", self.queue.dropped()),
        ];
        MetricPage::new(encoder).counters(
            "conductor_traces",
            "Traces of requests by their end: accepted or refused by the collector, not accepted in time, or dropped for want \
             of room in the queue",
            counts.into_iter().map(|(result, count)| (ResultLabel { result }, count)),
        )
    }
}
