//! Metrics of the table of response ids.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Metric handles. A clone is another handle to the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct ResponseMetrics {
    size: Gauge,
    lookups: Family<ResultLabel, Counter>,
    pub(super) found: Counter,
    pub(super) unknown: Counter,
    pub(super) gone: Counter,
}

impl Default for ResponseMetrics {
    fn default() -> Self {
        let lookups = Family::<ResultLabel, Counter>::default();
        let of = |result| lookups.get_or_create_owned(&ResultLabel { result });
        Self {
            found: of("found"),
            unknown: of("unknown"),
            gone: of("gone"),
            size: Gauge::default(),
            lookups,
        }
    }
}

impl ResponseMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "response_ids",
            "Response ids with a known worker",
            self.size.clone(),
        );
        registry.register(
            "response_id_lookups",
            "Requests by response id: worker found, id unknown, or worker gone (not in service)",
            self.lookups.clone(),
        );
    }

    pub(super) fn size_changed(&self, before: usize, after: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.size.inc_by(number(after) - number(before));
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> i64 {
        self.size.get()
    }
}
