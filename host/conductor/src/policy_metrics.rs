//! Metrics of the kept versions of policies, read at scrape time.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use routing::CircuitState;

use crate::status::Status;
use observability::MetricPage;
use policy_store::{PolicyReport, VersionReport, VersionState};

const STATES: [CircuitState; 3] = [CircuitState::Closed, CircuitState::Open, CircuitState::HalfOpen];

/// Collector of the reports that the reload thread keeps.
#[derive(Debug)]
pub(crate) struct PolicyCollector {
    pub(crate) status: Status,
}

impl Collector for PolicyCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let policies = self.status.policies().policies;
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
    page.gauges(
        "conductor_policy_in_force",
        "1 for the version of a policy that is in force, 0 for others that are kept",
        versions().map(|(policy, version)| {
            (
                labels(policy, version),
                u64::from(version.state == VersionState::Active),
            )
        }),
    )?;
    page.gauges(
        "conductor_policy_circuit_state",
        "1 for the state that the circuit of a version is in: closed, it is asked; open, it rests; half-open, single calls show \
         whether it has mended",
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
        "Times a version failed so often that it is not asked for a while",
        versions().map(|(policy, version)| (labels(policy, version), version.circuit.openings)),
    )
}

fn labels<'a>(policy: &'a str, version: &'a VersionReport) -> [(&'static str, &'a str); 2] {
    [("policy", policy), ("version", &version.id)]
}
