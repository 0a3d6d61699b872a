//! Metrics of the agreement.

use std::sync::{Mutex, PoisonError};

use agreement::{Agreement, AgreementCounts};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of the agreement.
#[derive(Debug, Default)]
pub struct AgreementMetrics {
    synced: Gauge,
    entries: Gauge,
    proposals: Gauge,
    not_followed: Gauge,
    early_start: Gauge,
    accepted: Counter,
    superseded: Counter,
    restored: Counter,
    refused: Counter,
    /// Counters as reported last.
    seen: Mutex<AgreementCounts>,
}

impl AgreementMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let mut gauge = |name: &str, help: &str, gauge: &Gauge| registry.register(name, help, gauge.clone());
        gauge(
            "conductor_replicas_agreement_synced",
            "1 while the store of the fleet's decisions answers",
            &metrics.synced,
        );
        gauge(
            "conductor_replicas_agreed_entries",
            "Decisions of the fleet that the store has",
            &metrics.entries,
        );
        gauge(
            "conductor_replicas_agreed_proposals",
            "Decisions of this router that the store does not have yet",
            &metrics.proposals,
        );
        gauge(
            "conductor_replicas_agreed_not_followed",
            "Decisions that this router refuses, or cannot apply while a live router follows them",
            &metrics.not_followed,
        );
        gauge(
            "conductor_replicas_agreed_early_start",
            "1 if this router began to serve before it followed the fleet's decisions",
            &metrics.early_start,
        );
        let mut counter =
            |name: &str, help: &str, counter: &Counter| registry.register(name, help, counter.clone());
        counter(
            "conductor_replicas_agreed_accepted",
            "Decisions of this router that the store accepted",
            &metrics.accepted,
        );
        counter(
            "conductor_replicas_agreed_superseded",
            "Decisions of this router that gave way to another router's",
            &metrics.superseded,
        );
        counter(
            "conductor_replicas_agreed_restored",
            "Decisions that the store had lost, or replaced by earlier ones, and that this router wrote again",
            &metrics.restored,
        );
        counter(
            "conductor_replicas_agreed_refused",
            "Entries and reports of the store that could not be read, and decisions beyond the most",
            &metrics.refused,
        );
        metrics
    }

    pub(crate) fn refused(&self) {
        self.refused.inc();
    }

    pub(crate) fn set_early_start(&self) {
        self.early_start.set(1);
    }

    pub(crate) fn look(&self, agreement: &Agreement, not_followed: usize) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.synced.set(agreement.is_synced().into());
        self.entries.set(count(agreement.entries().count()));
        self.proposals.set(count(agreement.proposals().count()));
        self.not_followed.set(count(not_followed));
        let counts = agreement.counts();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.accepted.inc_by(counts.accepted - seen.accepted);
        self.superseded.inc_by(counts.superseded - seen.superseded);
        self.restored.inc_by(counts.restored - seen.restored);
        self.refused.inc_by(counts.refused - seen.refused);
        *seen = counts;
    }
}
