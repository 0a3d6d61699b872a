//! Canaries that the stop rule stopped.

use std::collections::HashSet;

use proxy::TrialReport;

/// Stopped canaries at the last look.
#[derive(Debug, Default)]
pub struct TrialWatch(HashSet<StoppedCanary>);

/// Canary that is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoppedCanary {
    /// Name of its policy.
    pub policy: String,
    /// Matching rule of its route.
    pub route: String,
}

impl TrialWatch {
    /// Returns the canaries that were stopped since the last look.
    pub fn look(&mut self, trials: &[TrialReport]) -> Vec<StoppedCanary> {
        let stopped = trials.iter().flat_map(|trial| {
            let arms = trial.arms.iter().filter(|arm| arm.stopped.is_some());
            arms.map(|arm| StoppedCanary {
                policy: arm.policy.clone(),
                route: trial.route.clone(),
            })
        });
        let stopped: HashSet<_> = stopped.collect();
        let new = stopped.difference(&self.0).cloned().collect();
        self.0 = stopped;
        new
    }
}
