//! Metrics of policies: verdicts, faults, fallbacks and times of their calls.

use placement::FallbackCause;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use routing::FaultKind;

use crate::base::buckets::BucketBounds;
use crate::base::label::{VERDICTS, VerdictKind};
use crate::base::metric_labels::{PolicyKindLabel, PolicyLabel, TimesFamily};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyVerdictLabel {
    policy: String,
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyCauseLabel {
    policy: String,
    cause: &'static str,
}

/// Metric families of all policies.
#[derive(Debug, Clone)]
pub(crate) struct PolicyFamilies {
    decisions: Family<PolicyVerdictLabel, Counter>,
    faults: Family<PolicyKindLabel, Counter>,
    fallbacks: Family<PolicyCauseLabel, Counter>,
    gather_time: TimesFamily<PolicyLabel>,
    decision_time: TimesFamily<PolicyLabel>,
}

impl PolicyFamilies {
    pub(crate) fn new(bounds: &BucketBounds) -> Self {
        Self {
            decisions: Family::default(),
            faults: Family::default(),
            fallbacks: Family::default(),
            gather_time: Family::new_with_constructor(bounds.of("policy_gather_seconds")),
            decision_time: Family::new_with_constructor(bounds.of("policy_decision_seconds")),
        }
    }
}

impl PolicyFamilies {
    pub(crate) fn register(&self, r: &mut Registry) {
        r.register(
            "policy_decisions",
            "Valid verdicts of a policy",
            self.decisions.clone(),
        );
        r.register("policy_faults", "Failed calls of a policy", self.faults.clone());
        r.register(
            "policy_fallbacks",
            "Decisions of the fallback in place of a policy: after its pass, a fault, or with its circuits open",
            self.fallbacks.clone(),
        );
        r.register(
            "policy_gather_seconds",
            "Time to find the candidates of a call, query the index and lay out the numbers",
            self.gather_time.clone(),
        );
        r.register(
            "policy_decision_seconds",
            "Time of one call of a policy",
            self.decision_time.clone(),
        );
    }

    /// Returns the counters of a policy's answers.
    pub(crate) fn decisions(&self, policy: &str) -> Decisions {
        let verdict = |verdict| PolicyVerdictLabel {
            policy: policy.to_owned(),
            verdict,
        };
        Decisions(VERDICTS.map(|(_, label)| self.decisions.get_or_create_owned(&verdict(label))))
    }

    /// Returns the metrics of one policy.
    pub(crate) fn policy(&self, name: &str) -> PolicyMetrics {
        let policy = PolicyLabel {
            policy: name.to_owned(),
        };
        let fault = |kind: FaultKind| PolicyKindLabel {
            policy: name.to_owned(),
            kind: kind.as_str(),
        };
        let fallback = |cause: FallbackCause| PolicyCauseLabel {
            policy: name.to_owned(),
            cause: cause.as_str(),
        };
        PolicyMetrics {
            decisions: self.decisions(name),
            faults: FaultKind::ALL.map(|kind| (kind, self.faults.get_or_create_owned(&fault(kind)))),
            fallbacks: FallbackCause::ALL.map(|cause| self.fallbacks.get_or_create_owned(&fallback(cause))),
            gather_time: self.gather_time.get_or_create_owned(&policy),
            decision_time: self.decision_time.get_or_create_owned(&policy),
        }
    }
}

/// Counters of one policy's answers, by verdict.
#[derive(Debug, Clone)]
pub struct Decisions([Counter; VERDICTS.len()]);

impl Decisions {
    /// Returns the number of answers so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }
}

/// Metric handles of one policy.
#[derive(Debug)]
pub(crate) struct PolicyMetrics {
    decisions: Decisions,
    faults: [(FaultKind, Counter); FaultKind::ALL.len()],
    /// By cause.
    fallbacks: [Counter; FallbackCause::ALL.len()],
    pub(crate) gather_time: Histogram,
    pub(crate) decision_time: Histogram,
}

impl PolicyMetrics {
    /// Counts a valid verdict.
    pub(crate) fn decided(&self, verdict: VerdictKind) {
        self.decisions.0[verdict as usize].inc();
    }

    /// Counts a decision of the fallback.
    pub(crate) fn fell_back(&self, cause: FallbackCause) {
        self.fallbacks[cause as usize].inc();
    }

    pub(crate) fn failed(&self, kind: FaultKind) {
        if let Some((_, counter)) = self.faults.iter().find(|(known, _)| *known == kind) {
            counter.inc();
        }
    }
}
