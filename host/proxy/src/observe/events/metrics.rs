//! Metrics of events for policies.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use routing::FaultKind;

use crate::base::metric_labels::{PolicyKindLabel, PolicyLabel};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyResultLabel {
    policy: String,
    result: &'static str,
}

/// Metric families of all policies.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventFamilies {
    events: Family<PolicyResultLabel, Counter>,
    faults: Family<PolicyKindLabel, Counter>,
    ticks: Family<PolicyLabel, Counter>,
}

impl EventFamilies {
    pub(crate) fn register(&self, r: &mut Registry) {
        r.register(
            "policy_events",
            "Events for a policy: delivered, or dropped because of a full queue, an open circuit, a failed batch or a replaced policy",
            self.events.clone(),
        );
        r.register(
            "policy_event_faults",
            "Failed event batches and ticks of a policy",
            self.faults.clone(),
        );
        r.register("policy_ticks", "Ticks of a policy", self.ticks.clone());
    }

    pub(super) fn listener(&self, policy: &str) -> ListenerMetrics {
        let events = |result| {
            let policy = policy.to_owned();
            let label = PolicyResultLabel { policy, result };
            self.events.get_or_create(&label).clone()
        };
        let fault = |kind: FaultKind| {
            let (policy, kind) = (policy.to_owned(), kind.as_str());
            self.faults
                .get_or_create(&PolicyKindLabel { policy, kind })
                .clone()
        };
        let policy = policy.to_owned();
        ListenerMetrics {
            delivered: events("delivered"),
            dropped: events("dropped"),
            faults: FaultKind::ALL.map(fault),
            ticks: self.ticks.get_or_create(&PolicyLabel { policy }).clone(),
        }
    }
}

/// Metrics of one policy.
#[derive(Debug)]
pub(super) struct ListenerMetrics {
    pub(super) delivered: Counter,
    pub(super) dropped: Counter,
    pub(super) ticks: Counter,
    /// Counters in the order of [`FaultKind::ALL`].
    faults: [Counter; FaultKind::ALL.len()],
}

impl ListenerMetrics {
    pub(super) fn failed(&self, kind: FaultKind) {
        self.counter(kind).map(Counter::inc);
    }

    pub(super) fn faults(&self, kind: FaultKind) -> u64 {
        self.counter(kind).map_or(0, Counter::get)
    }

    fn counter(&self, kind: FaultKind) -> Option<&Counter> {
        let position = FaultKind::ALL.iter().position(|known| *known == kind)?;
        self.faults.get(position)
    }
}
