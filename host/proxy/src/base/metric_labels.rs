//! Label sets of metrics that several folders use.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use crate::base::buckets::Buckets;

/// Histograms by label set.
pub(crate) type TimesFamily<L> = Family<L, Histogram, Buckets>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PoolLabel {
    pub(crate) pool: String,
}

impl PoolLabel {
    pub(crate) fn of(pool: &str) -> Self {
        Self {
            pool: pool.to_owned(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PoolOutcomeLabel {
    pub(crate) pool: String,
    pub(crate) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WorkerResultLabel {
    pub(crate) worker: String,
    pub(crate) result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PolicyLabel {
    pub(crate) policy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PolicyKindLabel {
    pub(crate) policy: String,
    pub(crate) kind: &'static str,
}
