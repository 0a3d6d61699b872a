//! Outcome of a reload, for the log and for `POST /admin/reload`.

use serde::Serialize;
use tracing::{error, info};

use super::commit::Commit;
use super::step::PlanStep;
use crate::status::{ConfigReport, ProblemReport};
use conductor_config::ConfigChanges;

/// Outcome of a reload.
#[derive(Debug, Clone)]
pub(crate) enum ReloadOutcome {
    /// A change became active.
    Applied(Box<Changes>),
    /// The files hold what is active.
    Unchanged,
    /// The configuration waits for policies that are being compiled; the old one is active.
    Waiting { policies: Vec<String> },
    /// The configuration cannot be used; the old one stays.
    Refused {
        step: PlanStep,
        problems: Vec<ProblemReport>,
    },
}

/// Applied changes.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Changes {
    /// True if the text of the configuration changed.
    #[serde(skip)]
    pub(super) is_of_text: bool,
    #[serde(flatten)]
    config: ConfigChanges,
    /// True if keys, certificates or tokenizers changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    resources: bool,
    /// Policies with a new version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policy_versions: Vec<String>,
}

/// The answer to a request for a reload.
#[derive(Debug, Clone)]
pub(crate) struct ReloadAnswer {
    pub(crate) outcome: ReloadOutcome,
    /// The configuration after it.
    pub(crate) report: ConfigReport,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.config.is_empty() && !self.resources && self.policy_versions.is_empty()
    }
}

impl ReloadOutcome {
    pub(super) fn of_text(Commit { config, policies }: Commit) -> Self {
        let swapped = policies.swapped.into_iter();
        Self::Applied(Box::new(Changes {
            is_of_text: true,
            config,
            policy_versions: swapped.map(|swapped| swapped.policy).collect(),
            ..Changes::default()
        }))
    }

    pub(super) fn of_materials() -> Self {
        Self::Applied(Box::new(Changes {
            resources: true,
            ..Changes::default()
        }))
    }

    /// Adds policies with new versions. A refused configuration stays refused.
    pub(super) fn with_policies(self, swapped: Vec<String>) -> Self {
        match self {
            Self::Unchanged if !swapped.is_empty() => Self::Applied(Box::new(Changes {
                policy_versions: swapped,
                ..Changes::default()
            })),
            Self::Applied(changes) => Self::Applied(Box::new(Changes {
                policy_versions: swapped,
                ..*changes
            })),
            other => other,
        }
    }

    /// Returns the policies with a new version.
    pub(super) fn swapped(&self) -> &[String] {
        match self {
            Self::Applied(changes) => &changes.policy_versions,
            _ => &[],
        }
    }

    /// Adds policies that had new versions in earlier looks, while the reload waited for others.
    pub(super) fn with_earlier(self, mut earlier: Vec<String>) -> Self {
        earlier.extend(self.swapped().iter().cloned());
        earlier.sort();
        earlier.dedup();
        self.with_policies(earlier)
    }

    /// Returns whether the text has no outcome yet.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Applied(changes) => !changes.is_of_text,
            Self::Unchanged | Self::Waiting { .. } => true,
            Self::Refused { .. } => false,
        }
    }

    /// Returns the outcome's name for programs.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Applied(_) => "applied",
            Self::Unchanged => "unchanged",
            Self::Waiting { .. } => "waiting",
            Self::Refused { .. } => "refused",
        }
    }

    /// Returns whether any active item differs from before. An edit of a comment changes nothing.
    pub(crate) fn has_changes(&self) -> bool {
        matches!(self, Self::Applied(changes) if !changes.is_empty())
    }

    /// Logs the outcome of a reload that a signal requested. New changes and new errors have lines of their own.
    pub(super) fn log(&self, generation: u64) {
        let outcome = self.as_str();
        match self {
            Self::Applied(_) => info!(generation, outcome, "reload after SIGHUP: the files are applied"),
            Self::Unchanged => info!(
                generation,
                outcome, "reload after SIGHUP: the files hold what is active, nothing changed"
            ),
            Self::Waiting { policies } => info!(
                generation,
                outcome,
                policies = policies.join(", "),
                "reload after SIGHUP: the configuration waits for policies that are being compiled"
            ),
            Self::Refused { step, problems } => {
                let first = problems.iter().find(|problem| problem.severity == "error");
                let (line, column) = first.map_or((1, 1), |problem| (problem.line, problem.column));
                let message = first.map_or("", |problem| &problem.message);
                error!(
                    generation,
                    outcome,
                    step = step.as_str(),
                    problems = problems.len(),
                    line,
                    column,
                    "reload after SIGHUP: the configuration is refused and the old one stays: {message}"
                );
            }
        }
    }
}
