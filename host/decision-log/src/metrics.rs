//! Metrics of the decision log and the shadow log.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Counters of one log.
#[derive(Debug, Clone)]
pub(crate) struct RecordMetrics {
    /// Written lines.
    pub(crate) written: Counter,
    /// Records dropped for lack of memory or queue space.
    pub(crate) no_room: Counter,
    /// Records dropped because the file could not be written.
    pub(crate) no_file: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabel {
    why: &'static str,
}

/// Name and help text of a metric.
#[derive(Clone, Copy)]
struct MetricDescription {
    name: &'static str,
    help: &'static str,
}

impl RecordMetrics {
    /// Registers the metrics of the decision log.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self::named(
            registry,
            MetricDescription {
                name: "conductor_record_lines",
                help: "Decisions and outcomes written to the decision log",
            },
            MetricDescription {
                name: "conductor_record_dropped",
                help: "Lines of the decision log that were dropped: no room in the queue, or the file could not be written",
            },
        )
    }

    /// Registers the metrics of the shadow log.
    pub(crate) fn register_shadow_log(registry: &mut Registry) -> Self {
        Self::named(
            registry,
            MetricDescription {
                name: "conductor_shadow_log_lines",
                help: "Decisions of shadows written to the shadow log",
            },
            MetricDescription {
                name: "conductor_shadow_log_dropped",
                help: "Lines of the shadow log that were dropped: no room in the queue, or the file could not be written",
            },
        )
    }

    /// Registers the metrics of the access log.
    pub(crate) fn register_access_log(registry: &mut Registry) -> Self {
        Self::named(
            registry,
            MetricDescription {
                name: "conductor_access_log_lines",
                help: "Lines written to the access log",
            },
            MetricDescription {
                name: "conductor_access_log_dropped",
                help: "Lines of the access log that were dropped: no room in the queue, or the output could not be written",
            },
        )
    }

    fn named(registry: &mut Registry, lines: MetricDescription, lost: MetricDescription) -> Self {
        let (written, dropped) = (Counter::default(), Family::<WhyLabel, Counter>::default());
        let of = |why| dropped.get_or_create_owned(&WhyLabel { why });
        let metrics = Self {
            written: written.clone(),
            no_room: of("no-room"),
            no_file: of("no-file"),
        };
        registry.register(lines.name, lines.help, written);
        registry.register(lost.name, lost.help, dropped);
        metrics
    }
}
