//! One round of the reload thread: it reads the files, plans the changes, applies them and reports the outcome.

use std::path::PathBuf;
use std::time::SystemTime;

use admin_pages::control::{PlanStep, ProblemReport, ReloadOutcome};
use admin_views::ChangeKind;
use conductor_config::restart_keys;
use external_resources::ExternalResources;
use observability::error_chain;
use policy_store::Prepared;
use tracing::{error, info, warn};

use super::journal::JournalRefusal;
use super::outcome;
use super::plan::{FilePlan, Planned, RoundFindings};
use super::{Reloader, log_warnings};

impl Reloader {
    /// Returns the files and folders that matter.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let config = &self.active.config;
        let mut paths: Vec<PathBuf> = self.source.file().map(PathBuf::from).into_iter().collect();
        paths.extend(policy_store::policy_folder(config, &self.source));
        let policies = policy_store::wanted_policies(config, &self.source).into_iter();
        paths.extend(policies.filter_map(|wanted| wanted.file()));
        paths.extend(ExternalResources::files(config, &self.source));
        paths
    }

    /// Runs one reload at a request, for which the file is taken as it is and refused workers are tried again. Returns
    /// its outcome and its findings.
    pub(super) fn reload(&mut self) -> (ReloadOutcome, RoundFindings) {
        self.refused_discovery = None;
        self.round(None)
    }

    /// Runs one reload. Without a request, `now` is the time: a file that was modified a moment before may be
    /// half-written, and is left for the next round.
    pub(super) fn round(&mut self, now: Option<SystemTime>) -> (ReloadOutcome, RoundFindings) {
        let mut seen = RoundFindings::default();
        self.library.begin_look();
        let changed = self.changed_text();
        // Checked after the read: a write between the two also delays the text.
        let is_settling = now.is_some_and(|now| self.source.is_settling(now));
        let of_file = match changed {
            Ok(None) => self.reload_resources(),
            _ if is_settling => {
                seen.is_unsettled = true;
                self.keep_resources_current();
                ReloadOutcome::Unchanged
            }
            Ok(Some(text)) => self.reload_text(text, &mut seen),
            Err(refused) => self.refuse_file(&refused, None),
        };
        // A new text brings its policies; else those of the active configuration may have new bytes.
        let outcome = match of_file {
            ReloadOutcome::Applied(changes) if changes.is_of_text => ReloadOutcome::Applied(changes),
            of_file => {
                self.reload_discovered();
                let prepared = self.library.prepare(self.wanted_policies());
                seen.add(&prepared);
                let swapped = self.swap_policies(prepared);
                of_file.with_policies(swapped)
            }
        };
        self.follow_agreed();
        self.report_policies();
        (outcome, seen)
    }

    /// Applies a new text, or changes nothing.
    fn reload_text(&mut self, text: String, seen: &mut RoundFindings) -> ReloadOutcome {
        match self.plan_text(text.clone(), seen) {
            Ok(Planned::Ready(planned)) => self.apply_text(*planned),
            Ok(Planned::Waiting(policies)) => {
                self.keep_resources_current();
                ReloadOutcome::Waiting { policies }
            }
            Err(refused) => self.refuse_file(&refused, Some(&text)),
        }
    }

    /// Makes the plan of a text active.
    pub(super) fn apply_text(&mut self, planned: FilePlan) -> ReloadOutcome {
        let FilePlan {
            plan,
            warnings,
            ended,
        } = planned;
        let left_out = self.active.base.left_out.clone();
        let commit = self.commit(plan);
        self.log_left_out(&left_out);
        log_warnings(&warnings);
        self.report_resource_warnings();
        self.report_applied();
        self.report_overlays(Some(&ended));
        self.propose_ended(&ended);
        self.report_routes();
        self.report_ended_routes();
        let generation = self.active.generation.0;
        info!(generation, changes = %commit.config, "configuration applied");
        self.note_applied(format!("configuration applied: {}", commit.config));
        self.journal
            .applied_text(self.active.generation, &self.active.text);
        outcome::of_text(commit)
    }

    /// Hot swap: activates new policy versions under the unchanged configuration. Returns the policies with new
    /// versions.
    pub(super) fn swap_policies(&mut self, prepared: Prepared) -> Vec<String> {
        let is_fresh = |component: &str| {
            let twin = policy_store::shadow_name(component);
            prepared.fresh(component).is_some() || prepared.fresh(&twin).is_some()
        };
        let config = &self.active.config;
        let is_fresh = |policy: &str| policy_store::components(config, policy).any(is_fresh);
        let mut routes = config.routes.iter();
        let committed = if routes.any(|route| route.policies().any(is_fresh)) {
            match self.plan(self.active.candidate(), Some(prepared)) {
                Ok(plan) => self.commit(plan).policies,
                // The configuration was accepted before, with other policies only.
                Err(refused) => {
                    let error = error_chain(&refused);
                    error!(
                        error,
                        "failed to build the request path with new policies: the old ones stay"
                    );
                    return Vec::new();
                }
            }
        } else {
            // No route has them: nothing else depends on them.
            let committed = self.commit_policies(prepared);
            self.count_versions(&committed);
            committed
        };
        let swapped = committed.swapped.into_iter();
        swapped.map(|swapped| swapped.policy).collect()
    }

    /// Records that the file is, or was put back to, the active one.
    pub(super) fn unchanged(&self) -> ReloadOutcome {
        if !self.status.config().problems.is_empty() {
            info!("the configuration is again the active one");
            self.metrics.reload_unchanged();
            self.status.change_config(|report| report.problems.clear());
        }
        ReloadOutcome::Unchanged
    }

    /// Reports a configuration that became active.
    pub(super) fn report_applied(&self) {
        let config = &self.active.config;
        let needs_restart = restart_keys(&self.at_start, config);
        if !needs_restart.is_empty() {
            warn!(keys = needs_restart.join(", "), "these changes need a restart");
        }
        self.metrics.reload_applied();
        self.status.change_config(|report| {
            report.set_active(config);
            report.reloads_applied += 1;
            report.problems.clear();
            report.needs_restart = needs_restart;
        });
    }

    /// Reports a plan that failed, once for as long as it fails in the same way.
    pub(super) fn refuse(
        &self,
        step: PlanStep,
        problems: Vec<ProblemReport>,
        text: Option<&str>,
    ) -> ReloadOutcome {
        if self.status.config().problems != problems {
            for problem in &problems {
                self.log_problem(problem, step);
            }
            self.metrics.reload_refused();
            self.note_refused(step, &problems);
            if let Some(text) = text {
                self.journal.refused_text(text, &problems);
            }
            self.status.change_config(|report| {
                report.reloads_refused += 1;
                report.problems.clone_from(&problems);
            });
        }
        ReloadOutcome::Refused { step, problems }
    }

    pub(super) fn note_applied(&self, summary: String) {
        let generation = self.active.generation;
        self.journal
            .applied(ChangeKind::ConfigApplied, generation, summary);
    }

    fn note_refused(&self, step: PlanStep, problems: &[ProblemReport]) {
        let first = problems.iter().find(|problem| problem.severity == "error");
        let place = first.map(|problem| {
            let ProblemReport { line, column, .. } = problem;
            format!(": line {line}, column {column}: {}", problem.message)
        });
        let refusal = JournalRefusal {
            summary: format!("refused while {step}{}", place.unwrap_or_default()),
            problems: problems.len(),
        };
        let (cause, generation) = (self.journal.cause(), self.active.generation);
        self.journal
            .refused(ChangeKind::ConfigRefused, cause, generation, refusal);
    }

    fn log_problem(&self, problem: &ProblemReport, step: PlanStep) {
        let ProblemReport {
            severity,
            line,
            column,
            message,
            help,
            ..
        } = problem;
        let (file, step) = (self.source.name(), step.as_str());
        if *severity == "warning" {
            warn!(file, line, column, help, "{message}");
            return;
        }
        error!(
            file,
            line, column, help, step, "configuration refused, the old one stays: {message}"
        );
    }
}
