//! Renewal of the active configuration's resources: keys, certificates and tokenizers whose files changed.

use admin_pages::control::{ProblemReport, ReloadOutcome};
use conductor_config::Diagnostics;
use tracing::info;

use super::outcome;
use super::{ActiveConfig, Candidate, RefusedPlan, Reloader, log_warnings, reports};

impl Reloader {
    /// Reloads the resources of the active text, which is also that of the file.
    pub(super) fn reload_resources(&mut self) -> ReloadOutcome {
        let renewed = match self.renew_resources() {
            Ok(renewed) => renewed,
            Err(refused) => return self.refuse(refused.step(), refused.reason().problems(), None),
        };
        // The file has the active text, so no refused text needs its tokenizers again.
        self.active.resources.tokenizers.forget_spare();
        if renewed {
            self.report_applied();
            outcome::of_resources()
        } else {
            self.unchanged()
        }
    }

    /// Refuses the file, and renews the resources of the active configuration: a revoked key is not valid for as long
    /// as the file has a mistake.
    pub(super) fn refuse_file(&mut self, refused: &RefusedPlan, text: Option<&str>) -> ReloadOutcome {
        let mut problems = refused.reason().problems();
        if let Err(of_resources) = self.renew_resources() {
            problems.extend(of_active(of_resources.reason().problems()));
        }
        self.refuse(refused.step(), problems, text)
    }

    /// Renews the resources of the active configuration while a new text cannot be applied yet. A mistake is reported
    /// with the outcome of the text.
    pub(super) fn keep_resources_current(&mut self) {
        // The resources before stay.
        let _ = self.renew_resources();
    }

    /// Makes changed resources of the active configuration active. Returns false if none has changed.
    fn renew_resources(&mut self) -> Result<bool, RefusedPlan> {
        let ActiveConfig { file, text, .. } = &self.active;
        let resources = self.read_resources(file, text)?;
        if resources == self.active.resources {
            return Ok(false);
        }
        let candidate = Candidate {
            resources,
            ..self.active.candidate()
        };
        let plan = self.plan(candidate, None)?;
        self.commit(plan);
        self.report_resource_warnings();
        let generation = self.active.generation.0;
        info!(
            generation,
            "keys, certificates or tokenizers changed and are applied"
        );
        self.note_applied("keys, certificates or tokenizers changed".to_owned());
        Ok(true)
    }

    /// Returns the warnings about the resources of a configuration.
    pub(super) fn resource_warnings(&self, of: &ActiveConfig) -> Diagnostics {
        let warnings = of.resources.warnings(&of.file);
        Diagnostics::new(&self.source.name(), &of.text, warnings)
    }

    /// Logs the warnings about the active resources, and shows them on the page of the configuration.
    pub(super) fn report_resource_warnings(&self) {
        let warnings = self.resource_warnings(&self.active);
        log_warnings(&warnings);
        self.status
            .change_config(|report| report.warnings = reports(&warnings));
    }
}

/// Returns problems of the active configuration, for the report on a file with another text: it has not their places.
fn of_active(problems: Vec<ProblemReport>) -> impl Iterator<Item = ProblemReport> {
    problems.into_iter().map(|problem| ProblemReport {
        line: 1,
        column: 1,
        message: format!("the active configuration: {}", problem.message),
        ..problem
    })
}
