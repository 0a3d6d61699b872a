//! Watch of the policies' circuits: it finds those that opened since the last look.

use std::collections::HashMap;

use policy_store::PolicyReport;

/// Openings of each version's circuit at the last look.
#[derive(Debug, Default)]
pub(crate) struct CircuitWatch(HashMap<(String, String), u64>);

/// Circuit that opened.
#[derive(Debug)]
pub(super) struct CircuitOpening {
    pub(super) policy: String,
    /// Id of the version.
    pub(super) version: String,
}

impl CircuitWatch {
    /// Returns the circuits that opened since the last look. `reports` are not counted yet.
    pub(super) fn look(&mut self, reports: &[PolicyReport]) -> Vec<CircuitOpening> {
        let mut next = HashMap::new();
        let mut opened = Vec::new();
        for report in reports.iter().cloned().map(PolicyReport::counted) {
            for version in report.versions {
                let key = (report.name.clone(), version.id);
                let openings = version.circuit.openings;
                if openings > self.0.get(&key).copied().unwrap_or(0) {
                    let (policy, version) = key.clone();
                    opened.push(CircuitOpening { policy, version });
                }
                next.insert(key, openings);
            }
        }
        self.0 = next;
        opened
    }
}
