//! Changes of policies that somebody asks for: rolled back to the version before, and resumed.

use routing::Generation;
use thiserror::Error;
use tracing::{error, info, warn};

use super::{InForce, Reloader, SetUpError};
use crate::compose;
use crate::policy_library::{PolicyReport, Prepared, RollbackError, chain};
use crate::status::PoliciesReport;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyAction {
    /// Put the version before in force.
    RollBack,
    /// Take what the file holds again, rolled back or not, and ask every version again.
    Resume,
}

/// A change of one policy.
#[derive(Debug)]
pub(crate) struct PolicyChange {
    /// Its name in the configuration.
    pub(crate) policy: String,
    /// What is to be done with it.
    pub(crate) action: PolicyAction,
}

/// A change is not in force.
#[derive(Debug, Error)]
pub(crate) enum RefusedPolicyChange {
    /// There is nothing to change to.
    #[error(transparent)]
    Rollback(#[from] RollbackError),
    /// It is resumed, and what its file holds is no good.
    #[error(
        "the policy `{policy}` is resumed, but what its file holds cannot be put in force, and what was in force goes on: {problem}"
    )]
    Unavailable {
        /// Which policy.
        policy: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The request path refuses it.
    #[error("failed to put the version before in force")]
    Snapshot(#[source] SetUpError),
}

impl Reloader {
    /// Makes a change, or changes nothing; the policy as it is then. A policy whose file is no good is resumed with what there is.
    pub(super) fn change_policy(
        &mut self,
        change: &PolicyChange,
    ) -> Result<PolicyReport, RefusedPolicyChange> {
        let name = &change.policy;
        if let Some(scorers) = compose::scorers_of(&self.in_force.config, name) {
            return Err(RollbackError::Pipeline(name.clone(), scorers).into());
        }
        match change.action {
            PolicyAction::RollBack => {
                let undo = self.library.roll_back(name)?;
                if let Err(refused) = self.renew_routes() {
                    self.library.undo(undo);
                    return Err(RefusedPolicyChange::Snapshot(refused));
                }
                self.library.keep_rollbacks();
                self.metrics.policy_rolled_back(name, "operator", 1);
            }
            PolicyAction::Resume => {
                self.library.resume(name)?;
                info!(
                    policy = name,
                    "an operator resumes the policy: its file is read again"
                );
                if let Err(refused) = self.renew_routes() {
                    // It was accepted with the same versions in another order.
                    error!(
                        error = chain(&refused),
                        "the request path refused a policy's versions"
                    );
                }
                let wanted = compose::wanted_policies(&self.in_force.config, &self.source);
                let prepared = self.library.prepare(wanted);
                self.swap_policies(prepared);
            }
        }
        self.tell_policies();
        let report = self
            .library
            .report()
            .into_iter()
            .find(|report| report.name == *name);
        let report = report.map(PolicyReport::counted);
        let report = report.ok_or_else(|| RollbackError::NoSuchPolicy(name.clone()))?;
        if change.action == PolicyAction::Resume
            && let Some(problem) = report.problem
        {
            let policy = report.name;
            return Err(RefusedPolicyChange::Unavailable { policy, problem });
        }
        if change.action == PolicyAction::RollBack {
            let (version, held) = (report.version.as_deref(), report.held_back.join(", "));
            warn!(
                policy = name,
                version, held, "an operator rolled the policy back: the version before is in force"
            );
        }
        Ok(report)
    }

    /// The configuration in force again, for the policies' versions as they are now.
    fn renew_routes(&mut self) -> Result<(), SetUpError> {
        let generation = Generation(self.in_force.generation.0 + 1);
        self.put_policies_in_force(None, generation)?;
        self.tell_generation();
        Ok(())
    }

    /// A snapshot of the configuration in force with what is prepared.
    pub(super) fn put_policies_in_force(
        &mut self,
        prepared: Option<&Prepared>,
        generation: Generation,
    ) -> Result<(), SetUpError> {
        let InForce {
            config,
            materials,
            fleet,
            ..
        } = &self.in_force;
        let next = self.snapshot((config, materials, fleet), prepared, generation)?;
        self.cell.store(next);
        self.in_force.generation = generation;
        Ok(())
    }

    pub(super) fn tell_generation(&self) {
        let generation = self.in_force.generation;
        self.metrics.in_force(generation);
        self.status
            .change_config(|report| report.generation = generation.0);
    }

    /// Shows the policies as they are, and counts those that fell back by themselves.
    pub(super) fn tell_policies(&mut self) {
        for (policy, rollbacks) in self.library.new_rollbacks() {
            self.metrics.policy_rolled_back(&policy, "circuit", rollbacks);
        }
        self.library.release_spare_instances();
        let folder = compose::policy_folder(&self.in_force.config, &self.source);
        let config = &self.in_force.config;
        self.library
            .look_for_strays(folder.as_deref(), |name| compose::takes_file(config, name));
        let reports = compose::policy_reports(config, &self.library, &self.proxy_metrics);
        self.status
            .set_policies(PoliciesReport::of(reports, self.library.ignored_files(), folder));
    }
}
