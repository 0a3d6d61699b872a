//! What became of records.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Counters of a recorder.
#[derive(Debug, Clone)]
pub(super) struct RecordMetrics {
    /// Lines of decisions and outcomes in the file.
    pub(super) written: Counter,
    /// Records for which there was no room.
    pub(super) no_room: Counter,
    /// Records that could not be written.
    pub(super) no_file: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabel {
    why: &'static str,
}

impl RecordMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let (written, dropped) = (Counter::default(), Family::<WhyLabel, Counter>::default());
        let of = |why| dropped.get_or_create_owned(&WhyLabel { why });
        let metrics = Self {
            written: written.clone(),
            no_room: of("no-room"),
            no_file: of("no-file"),
        };
        registry.register(
            "conductor_record_lines",
            "Decisions and outcomes written to the decision log",
            written,
        );
        registry.register(
            "conductor_record_dropped",
            "Decisions and outcomes that were to be recorded and are not: there was no room, or the file could not be written",
            dropped,
        );
        metrics
    }
}
