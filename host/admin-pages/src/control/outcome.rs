//! Outcome of a reload.

use conductor_config::ConfigChanges;
use serde::Serialize;

use super::{ConfigReport, PlanStep, ProblemReport};

/// Outcome of a reload.
#[derive(Debug, Clone)]
pub enum ReloadOutcome {
    /// A change became active.
    Applied(Box<Changes>),
    /// The files hold what is active.
    Unchanged,
    /// The configuration waits for policies that are being compiled; the old one is active.
    Waiting {
        /// Names of the policies.
        policies: Vec<String>,
    },
    /// The configuration cannot be used; the old one stays.
    Refused {
        /// Failed step.
        step: PlanStep,
        /// Errors of the configuration.
        problems: Vec<ProblemReport>,
    },
}

/// Applied changes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Changes {
    /// True if the text of the configuration changed.
    #[serde(skip)]
    pub is_of_text: bool,
    /// Changes of the configuration.
    #[serde(flatten)]
    pub config: ConfigChanges,
    /// True if keys, certificates or tokenizers changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resources: bool,
    /// Policies with a new version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policy_versions: Vec<String>,
}

/// The answer to a request for a reload.
#[derive(Debug, Clone)]
pub struct ReloadAnswer {
    /// Outcome.
    pub outcome: ReloadOutcome,
    /// The configuration after it.
    pub report: ConfigReport,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.config.is_empty() && !self.resources && self.policy_versions.is_empty()
    }
}

impl ReloadOutcome {
    /// Adds policies with new versions. A refused configuration stays refused.
    #[must_use]
    pub fn with_policies(self, swapped: Vec<String>) -> Self {
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
    #[must_use]
    pub fn swapped(&self) -> &[String] {
        match self {
            Self::Applied(changes) => &changes.policy_versions,
            _ => &[],
        }
    }

    /// Adds policies that had new versions in earlier looks, while the reload waited for others.
    #[must_use]
    pub fn with_earlier(self, mut earlier: Vec<String>) -> Self {
        earlier.extend(self.swapped().iter().cloned());
        earlier.sort();
        earlier.dedup();
        self.with_policies(earlier)
    }

    /// Returns whether the text has no outcome yet.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self {
            Self::Applied(changes) => !changes.is_of_text,
            Self::Unchanged | Self::Waiting { .. } => true,
            Self::Refused { .. } => false,
        }
    }

    /// Returns the outcome's name for programs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Applied(_) => "applied",
            Self::Unchanged => "unchanged",
            Self::Waiting { .. } => "waiting",
            Self::Refused { .. } => "refused",
        }
    }

    /// Returns whether any active item differs from before. An edit of a comment changes nothing.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        matches!(self, Self::Applied(changes) if !changes.is_empty())
    }
}
