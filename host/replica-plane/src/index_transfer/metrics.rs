//! Metrics of the transfer.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Metrics of the transfer.
#[derive(Debug, Default)]
pub struct TransferMetrics {
    fetched: Family<ResultLabel, Counter>,
    fetched_bytes: Counter,
    given: Counter,
    given_bytes: Counter,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Result of fetching the contents of a feed from one router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FetchResult {
    /// The contents were taken over.
    Taken,
    /// They came too late, or know no more than this router.
    Useless,
    /// The router refused.
    Refused,
    /// The router did not answer.
    TimedOut,
    /// The answer was not readable.
    Unreadable,
}

impl FetchResult {
    const ALL: [Self; 5] = [
        Self::Taken,
        Self::Useless,
        Self::Refused,
        Self::TimedOut,
        Self::Unreadable,
    ];

    fn label(self) -> ResultLabel {
        let result = match self {
            Self::Taken => "taken",
            Self::Useless => "useless",
            Self::Refused => "refused",
            Self::TimedOut => "timed-out",
            Self::Unreadable => "unreadable",
        };
        ResultLabel { result }
    }
}

impl TransferMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        for result in FetchResult::ALL {
            drop(metrics.fetched.get_or_create(&result.label()));
        }
        registry.register(
            "conductor_replicas_index_fetches",
            "Feeds whose contents this router requested from another one at its start, by result",
            metrics.fetched.clone(),
        );
        let mut counter =
            |name: &str, help: &str, counter: &Counter| registry.register(name, help, counter.clone());
        counter(
            "conductor_replicas_index_fetched_bytes",
            "Bytes of the index that came from other routers",
            &metrics.fetched_bytes,
        );
        counter(
            "conductor_replicas_index_given",
            "Feeds whose contents this router gave to another one",
            &metrics.given,
        );
        counter(
            "conductor_replicas_index_given_bytes",
            "Bytes of the index that this router sent to others",
            &metrics.given_bytes,
        );
        metrics
    }

    pub(crate) fn fetched(&self, result: FetchResult) {
        self.fetched.get_or_create(&result.label()).inc();
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.fetched_bytes.inc_by(bytes as u64);
    }

    pub(crate) fn gave(&self) {
        self.given.inc();
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.given_bytes.inc_by(bytes as u64);
    }
}
