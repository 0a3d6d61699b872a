//! Experiments of the active configuration, as the routers of a fleet share them.

use std::sync::Arc;

use proxy::{EvidenceTotals, SharedArm, SnapshotCell, StopCause, TrialShare};
use replica_plane::{ArmFacts, SharedTrial, StopOrder, TrialFacts, TrialSource};

/// Experiments of the active snapshot.
#[derive(Debug)]
pub(crate) struct ActiveTrials(pub(crate) Arc<SnapshotCell>);

/// One of them.
pub(crate) struct ActiveTrial(TrialShare);

impl TrialSource for ActiveTrials {
    type Trial = ActiveTrial;

    fn trials(&self) -> Vec<ActiveTrial> {
        let shares = self.0.load().trial_shares();
        shares.into_iter().map(ActiveTrial).collect()
    }
}

impl SharedTrial for ActiveTrial {
    fn facts(&self) -> TrialFacts {
        let (pool, route) = self.0.place();
        TrialFacts {
            identity: self.0.identity(),
            pool: pool.to_owned(),
            route: route.to_owned(),
            arms: self.0.arms().iter().map(facts).collect(),
        }
    }

    fn take_changed(&self, arm: usize) -> bool {
        self.0.take_changed(arm)
    }

    fn totals(&self) -> EvidenceTotals {
        self.0.totals()
    }

    fn set_others(&self, others: &[&EvidenceTotals]) {
        self.0.set_others(others.iter().copied());
    }

    fn apply_stop(&self, arm: usize, order: Option<&StopOrder>) -> bool {
        match order {
            Some(order) => self.0.obey_stop(arm, &order.by, &order.reason),
            None => self.0.obey_resume(arm),
        }
    }
}

fn facts(arm: &SharedArm) -> ArmFacts {
    let reason = match arm.cause {
        None => String::new(),
        Some(StopCause::ConsecutiveFailures { failures, .. }) => format!("{failures} failures in a row"),
        Some(StopCause::Compared(measure, look)) => format!(
            "{} worse by {:.4}, at least {:.4}, over {} samples",
            measure.as_str(),
            look.estimate,
            look.low,
            look.samples
        ),
    };
    ArmFacts {
        policy: arm.policy.to_string(),
        version: arm.version.to_string(),
        is_stopped: arm.is_stopped,
        reason,
    }
}
