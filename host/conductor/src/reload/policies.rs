//! Changes of policies by an operator: rollback to the version before, and resumption.

use admin_pages::control::{ExploreSources, PoliciesReport, PolicyAction, PolicyChange, RefusedPolicyChange};
use admin_views::{ChangeCause, ChangeKind};
use tracing::{info, warn};

use super::circuits::CircuitOpening;
use super::{RefusedPlan, Reloader};
use crate::compose;
use policy_store::{PolicyReport, RollbackError, UploadRules, WantedPolicy};

impl Reloader {
    /// Makes a change, or changes nothing, and returns the policy's new state. A policy whose file is invalid is
    /// resumed with its present version. `None` while its file is compiled: [`Reloader::changed_policy`] returns the
    /// result then.
    pub(super) fn change_policy(
        &mut self,
        change: &PolicyChange,
    ) -> Result<Option<PolicyReport>, RefusedPolicyChange> {
        let name = &change.policy;
        if let Some(scorers) = policy_store::scorers_of(&self.active.config, name) {
            return Err(RollbackError::Pipeline(name.clone(), scorers).into());
        }
        match change.action {
            PolicyAction::RollBack => {
                let undo = self.library.roll_back(name)?;
                if let Err(refused) = self.renew_routes() {
                    self.library.undo(undo);
                    return Err(RefusedPolicyChange::Plan(refused.into()));
                }
                self.library.keep_rollbacks();
                self.metrics.policy_rolled_back(name, "operator", 1);
                let summary = format!("an operator rolled `{name}` back");
                self.note_policy(ChangeKind::PolicyRolledBack, ChangeCause::Api, summary);
                self.propose_hold(name);
            }
            PolicyAction::Resume => {
                let undo = self.library.resume(name)?;
                if let Err(refused) = self.renew_routes() {
                    self.library.undo(undo);
                    return Err(RefusedPolicyChange::Plan(refused.into()));
                }
                self.library.close_circuits(name);
                info!(
                    policy = name,
                    "an operator resumes the policy: its file is read again"
                );
                let summary = format!("an operator resumed `{name}`");
                self.note_policy(ChangeKind::PolicyResumed, ChangeCause::Api, summary);
                let prepared = self.library.prepare(self.wanted_policies());
                self.swap_policies(prepared);
                self.propose_hold(name);
            }
        }
        self.report_policies();
        self.changed_policy(change)
    }

    /// Returns a policy after a change of it. `None` while the bytes that it resumes with are being compiled.
    pub(super) fn changed_policy(
        &self,
        change: &PolicyChange,
    ) -> Result<Option<PolicyReport>, RefusedPolicyChange> {
        let name = &change.policy;
        if change.action == PolicyAction::Resume && self.library.is_loading(name) {
            return Ok(None);
        }
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
                version, held, "an operator rolled the policy back: the previous version is active"
            );
        }
        Ok(Some(report))
    }

    pub(super) fn note_policy(&self, kind: ChangeKind, cause: ChangeCause, summary: String) {
        self.journal.note(kind, cause, self.active.generation, summary);
    }

    /// Applies the active configuration again, for the policies' versions as they are now.
    pub(super) fn renew_routes(&mut self) -> Result<(), RefusedPlan> {
        let plan = self.plan(self.active.candidate(), None)?;
        self.commit(plan);
        Ok(())
    }

    /// Returns the policies of the active configuration.
    pub(super) fn wanted_policies(&self) -> Vec<WantedPolicy> {
        policy_store::wanted_policies(&self.active.config, &self.source)
    }

    /// Reports the policies as they are, and counts those that fell back by themselves.
    pub(super) fn report_policies(&mut self) {
        for (policy, rollbacks) in self.library.new_rollbacks() {
            self.metrics.policy_rolled_back(&policy, "circuit", rollbacks);
            let summary = format!("`{policy}` went back to the version before: its circuit is open");
            self.note_policy(ChangeKind::PolicyRolledBack, ChangeCause::Circuit, summary);
        }
        self.library.release_spare_instances();
        let folder = policy_store::policy_folder(&self.active.config, &self.source);
        let config = &self.active.config;
        self.library
            .look_for_ignored_files(folder.as_deref(), |name| policy_store::takes_file(config, name));
        let reports = compose::policy_reports(config, &self.library, &self.live.metrics);
        for opened in self.circuits.look(&reports) {
            let CircuitOpening { policy, version } = opened;
            let summary = format!("the circuit of version {version} of `{policy}` opened");
            self.note_policy(ChangeKind::CircuitOpened, ChangeCause::Circuit, summary);
        }
        let log = compose::record_files(config, &self.source).decisions;
        let explore = ExploreSources {
            uploads: UploadRules::of(config, &self.source),
            log: log.map(|log| log.path),
        };
        self.status.set_policies(PoliciesReport::of(
            reports,
            self.library.ignored_files(),
            folder,
            explore,
        ));
    }
}
