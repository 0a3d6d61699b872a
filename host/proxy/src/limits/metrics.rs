//! Metrics of limits: those of clients, and those of admission.

use prometheus_client::registry::Registry;

use crate::base::buckets::BucketBounds;
use crate::limits::admission::AdmissionFamilies;
use crate::limits::clients::ClientFamilies;

/// Metrics of limits. A clone is another handle to the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct LimitMetrics {
    pub(crate) clients: ClientFamilies,
    pub(crate) admission: AdmissionFamilies,
}

impl LimitMetrics {
    pub(crate) fn new(bounds: &BucketBounds) -> Self {
        Self {
            clients: ClientFamilies::default(),
            admission: AdmissionFamilies::new(bounds),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.clients.register(registry);
        self.admission.register(registry);
    }
}
