//! Check of an uploaded component: the scenarios of `conductor policy check`, in the router's own engine.

use policy_runtime::{PolicyEngine, PolicySettings, RehearsedScenario};
use serde::Serialize;

use super::check::{all_findings, explain_outcome};
use super::diagnostic::{Diagnostic, Severity};
use crate::args::GateArgs;

/// Component to check.
#[derive(Debug, Clone, Copy)]
pub struct UploadedComponent<'a> {
    /// Name of the policy.
    pub name: &'a str,
    /// Bytes of the component.
    pub bytes: &'a [u8],
    /// Settings that the policy will be loaded with.
    pub settings: &'a PolicySettings,
    /// True if a pipeline has it as a scorer.
    pub scores: bool,
}

/// Result of the check.
#[derive(Debug, Default, Serialize)]
pub struct UploadCheck {
    /// Name and version in the component's manifest, if it could be called.
    pub manifest: Option<String>,
    /// Errors: the component is refused if there are any.
    pub problems: Vec<UploadProblem>,
    /// Warnings.
    pub warnings: Vec<UploadProblem>,
    /// Results of the scenarios. Empty if it could not be called.
    pub scenarios: Vec<ScenarioResult>,
}

/// Problem of a component.
#[derive(Debug, Serialize)]
pub struct UploadProblem {
    /// Stable kind, as `conductor policy check` has it.
    pub code: String,
    /// Description of the problem.
    pub message: String,
    /// Cure.
    pub help: Option<String>,
}

/// Result of one scenario.
#[derive(Debug, Serialize)]
pub struct ScenarioResult {
    /// Name of the scenario.
    pub name: &'static str,
    /// Description of the scenario.
    pub about: &'static str,
    /// Number of candidates.
    pub candidates: usize,
    /// True if the policy gave a valid verdict.
    pub passed: bool,
    /// Verdict, or the fault.
    pub verdict: String,
}

/// Checks a component. It takes seconds, and its calls have the limits of its settings.
#[must_use]
pub fn check_upload(engine: &PolicyEngine, component: &UploadedComponent<'_>) -> UploadCheck {
    let UploadedComponent {
        name,
        bytes,
        settings,
        scores,
    } = *component;
    let rehearsal = match engine.rehearse(name, bytes, settings, |_| {}) {
        Ok(rehearsal) => rehearsal,
        Err(error) => return UploadCheck::default().with(Diagnostic::not_loaded(&error, None)),
    };
    let mut findings = all_findings(&rehearsal, settings, &GateArgs::default());
    if scores && !rehearsal.description.scores_singly() {
        let message = "a pipeline has the policy as a scorer, and the component is none";
        let help = "export `score`, and do not request `worker.role`";
        findings.push(Diagnostic::error("not-a-scorer", message).help(help));
    }
    let manifest = &rehearsal.description.manifest;
    let manifest = format!("{} {}", manifest.name, manifest.version);
    let check = UploadCheck {
        manifest: Some(manifest),
        scenarios: rehearsal.scenes.into_iter().map(ScenarioResult::of).collect(),
        ..UploadCheck::default()
    };
    check.with(findings)
}

impl UploadCheck {
    fn with(mut self, findings: Vec<Diagnostic>) -> Self {
        for finding in findings {
            let list = match finding.severity {
                Severity::Error => &mut self.problems,
                Severity::Warning => &mut self.warnings,
            };
            list.push(UploadProblem {
                code: finding.code,
                message: finding.message,
                help: finding.help,
            });
        }
        self
    }

    /// Returns true if the component may be stored.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

impl ScenarioResult {
    fn of(scene: RehearsedScenario) -> Self {
        Self {
            name: scene.scenario.name,
            about: scene.scenario.about,
            candidates: scene.scenario.candidates(),
            passed: scene.outcome.is_ok(),
            verdict: explain_outcome(scene.outcome),
        }
    }
}
