//! Metrics of the kept versions of policies, read at scrape time.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use routing::CircuitState;

use crate::library::{PolicyReport, VersionReport, VersionState};
use observability::MetricPage;

const STATES: [CircuitState; 3] = [CircuitState::Closed, CircuitState::Open, CircuitState::HalfOpen];

/// Name and former name of one family.
const ACTIVE_NAMES: [(&str, &str); 2] = [
    (
        "conductor_policy_active",
        "1 for the active version of a policy, 0 for other kept versions",
    ),
    (
        "conductor_policy_in_force",
        "Deprecated: use conductor_policy_active",
    ),
];

/// Collector of the newest reports on policies.
pub struct PolicyCollector {
    reports: Box<dyn Fn() -> Vec<PolicyReport> + Send + Sync>,
}

impl PolicyCollector {
    /// Registers the metrics. `reports` returns the newest reports.
    pub fn register(
        reports: impl Fn() -> Vec<PolicyReport> + Send + Sync + 'static,
        registry: &mut Registry,
    ) {
        let reports = Box::new(reports);
        registry.register_collector(Box::new(Self { reports }));
    }
}

impl fmt::Debug for PolicyCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyCollector").finish_non_exhaustive()
    }
}

impl Collector for PolicyCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let policies = (self.reports)();
        if policies.is_empty() {
            return Ok(());
        }
        encode(&policies, &mut MetricPage::new(encoder))
    }
}

fn encode(policies: &[PolicyReport], page: &mut MetricPage<'_>) -> Result<(), fmt::Error> {
    let versions = || {
        policies.iter().flat_map(|policy| {
            policy
                .versions
                .iter()
                .map(|version| (policy.name.as_str(), version))
        })
    };
    for (name, help) in ACTIVE_NAMES {
        page.gauges(
            name,
            help,
            versions().map(|(policy, version)| {
                (
                    labels(policy, version),
                    u64::from(version.state == VersionState::Active),
                )
            }),
        )?;
    }
    page.gauges(
        "conductor_policy_circuit_state",
        "1 for the state of a version's circuit: closed (called), open (not called) or half-open (test calls)",
        versions().flat_map(|(policy, version)| {
            STATES.map(|state| {
                let [name, id] = labels(policy, version);
                let is_in = version.circuit.state == state.as_str();
                ([name, id, ("state", state.as_str())], u64::from(is_in))
            })
        }),
    )?;
    page.counters(
        "conductor_policy_circuit_openings",
        "Openings of a version's circuit after repeated faults",
        versions().map(|(policy, version)| (labels(policy, version), version.circuit.openings)),
    )?;
    page.counters(
        "conductor_policy_log_lines_dropped",
        "Log lines of a version that were dropped: it wrote more than 10 a second",
        versions().map(|(policy, version)| (labels(policy, version), version.counts.log_lines_dropped)),
    )
}

fn labels<'a>(policy: &'a str, version: &'a VersionReport) -> [(&'static str, &'a str); 2] {
    [("policy", policy), ("version", &version.id)]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::library::{CircuitReport, LoadTimes, PipelineDecisions, VersionCounts};
    use crate::pipeline_report::PipelineReport;

    #[derive(Debug)]
    struct Undecided;

    impl PipelineDecisions for Undecided {
        fn count(&self) -> u64 {
            0
        }
    }

    fn version(id: &str, log_lines_dropped: u64) -> VersionReport {
        VersionReport {
            id: id.to_owned(),
            state: VersionState::Active,
            sha256: String::new(),
            manifest: String::new(),
            params: serde_json::Value::Null,
            since_unix_ms: None,
            counts: VersionCounts {
                log_lines_dropped,
                ..VersionCounts::default()
            },
            circuit: CircuitReport {
                state: CircuitState::Closed.as_str(),
                openings: 0,
            },
            load: LoadTimes {
                compiled_us: 0,
                instantiated_us: 0,
                decided_256_us: 0.0,
            },
        }
    }

    #[test]
    fn dropped_log_lines_are_counted_by_version() {
        let pipeline = PipelineReport {
            filters: Vec::new(),
            scorers: Vec::new(),
            pick: "max",
            temperature: None,
        };
        let mut report = PolicyReport::of_pipeline("mine", "a", pipeline, Arc::new(Undecided));
        report.versions = vec![version("a", 90), version("b", 0)];
        let mut registry = Registry::default();
        PolicyCollector::register(move || vec![report.clone()], &mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "conductor_policy_log_lines_dropped_total{policy=\"mine\",version=\"a\"} 90\n",
            "conductor_policy_log_lines_dropped_total{policy=\"mine\",version=\"b\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
