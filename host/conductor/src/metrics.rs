//! Metrics of reloads, versions of policies and overlays.

use std::sync::atomic::AtomicU64;
use std::time::UNIX_EPOCH;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use routing::Generation;

use runtime_overrides::{OverlayKind, OverlayReport};

/// Counted by the reload thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct ControlMetrics {
    generation: Gauge,
    /// Unix time of the last activation.
    applied: Gauge<f64, AtomicU64>,
    valid: Gauge,
    reloads: Family<ReloadLabels, Counter>,
    policy_versions: Family<PolicyLabels, Counter>,
    policy_rollbacks: Family<RollbackLabels, Counter>,
    overlays: Family<OverlayLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabels {
    policy: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RollbackLabels {
    policy: String,
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OverlayLabels {
    kind: &'static str,
}

impl ControlMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "conductor_config_generation",
            "Snapshots activated since the start",
            metrics.generation.clone(),
        );
        registry.register(
            "conductor_config_applied_timestamp_seconds",
            "Unix time of the last activation of a snapshot",
            metrics.applied.clone(),
        );
        registry.register(
            "conductor_config_last_reload_successful",
            "1 while the newest configuration file is active, 0 while it is refused",
            metrics.valid.clone(),
        );
        registry.register(
            "conductor_config_valid",
            "Deprecated: use conductor_config_last_reload_successful",
            metrics.valid.clone(),
        );
        registry.register(
            "conductor_config_reloads",
            "Configuration files read, by result",
            metrics.reloads.clone(),
        );
        registry.register(
            "conductor_policy_versions",
            "Policy versions activated or refused",
            metrics.policy_versions.clone(),
        );
        registry.register(
            "conductor_policy_rollbacks",
            "Rollbacks to an earlier version of a policy, by cause: operator, circuit or fleet",
            metrics.policy_rollbacks.clone(),
        );
        registry.register(
            "conductor_instance_overlays",
            "Instances that runtime overrides changed, by kind of change",
            metrics.overlays.clone(),
        );
        metrics.valid.set(1);
        for result in ["applied", "refused"] {
            metrics.reloads.get_or_create(&ReloadLabels { result }).inc_by(0);
        }
        metrics.overlays(&[]);
        metrics
    }

    /// Sets the number of changes over HTTP.
    pub(crate) fn overlays(&self, overlays: &[OverlayReport]) {
        for kind in OverlayKind::ALL {
            let count = overlays.iter().filter(|overlay| overlay.kind == kind).count();
            let labels = OverlayLabels { kind: kind.as_str() };
            let gauge = self.overlays.get_or_create(&labels);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn activated(&self, generation: Generation) {
        self.generation
            .set(i64::try_from(generation.0).unwrap_or(i64::MAX));
        let now = UNIX_EPOCH.elapsed().unwrap_or_default();
        self.applied.set(now.as_secs_f64());
    }

    pub(crate) fn reload_applied(&self) {
        self.valid.set(1);
        self.reloads
            .get_or_create(&ReloadLabels { result: "applied" })
            .inc();
    }

    pub(crate) fn reload_refused(&self) {
        self.valid.set(0);
        self.reloads
            .get_or_create(&ReloadLabels { result: "refused" })
            .inc();
    }

    /// Records that the file is again the active one.
    pub(crate) fn reload_unchanged(&self) {
        self.valid.set(1);
    }

    pub(crate) fn policy_swapped(&self, policy: &str) {
        self.policy_version(policy, "active");
    }

    pub(crate) fn policy_refused(&self, policy: &str) {
        self.policy_version(policy, "refused");
    }

    pub(crate) fn policy_rolled_back(&self, policy: &str, cause: &'static str, times: u64) {
        let labels = RollbackLabels {
            policy: policy.to_owned(),
            cause,
        };
        self.policy_rollbacks.get_or_create(&labels).inc_by(times);
    }

    fn policy_version(&self, policy: &str, result: &'static str) {
        self.policy_versions
            .get_or_create(&PolicyLabels {
                policy: policy.to_owned(),
                result,
            })
            .inc();
    }
}
