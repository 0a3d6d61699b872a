//! Why a configuration is not put in force, for logs, `/admin/config` and `conductor check`.

use conductor_config::{Config, Diagnostics, Paint, PolicyConfig, Severity};
use kv_feed::FeedError;
use proxy::SnapshotError;
use thiserror::Error;

use crate::config_source::ReadConfigError;
use crate::keys::KeyError;
use crate::policy_library::{Outcome, Prepared, PreparedPolicy, chain};
use crate::status::ProblemReport;

/// The configuration cannot be put in force.
#[derive(Debug, Error)]
pub enum RefusedConfig {
    /// It cannot be read.
    #[error(transparent)]
    Read(ReadConfigError),
    /// It has mistakes.
    #[error("the configuration has {} mistakes:\n{}", .0.error_count(), .0.render(Paint::Plain))]
    Invalid(Diagnostics),
    /// It needs policies that cannot be had.
    #[error("the configuration needs policies that cannot be had: {}", list(.0))]
    Policies(Vec<ProblemReport>),
    /// A key that it names cannot be had.
    #[error(transparent)]
    Key(KeyError),
    /// The request path refuses it, which the checks of the configuration should have foreseen.
    #[error("failed to set up the request path")]
    Snapshot(#[source] SnapshotError),
    /// The event feeds refuse it.
    #[error("failed to follow the event feeds")]
    Feeds(#[source] FeedError),
}

fn list(problems: &[ProblemReport]) -> String {
    let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    messages.join("; ")
}

impl RefusedConfig {
    /// The same for tools.
    pub(crate) fn problems(&self) -> Vec<ProblemReport> {
        match self {
            Self::Invalid(diagnostics) => reports(diagnostics),
            Self::Policies(problems) => problems.clone(),
            Self::Read(_) => vec![whole_file("unreadable", self)],
            Self::Key(_) => vec![whole_file("key-unreadable", self)],
            Self::Snapshot(_) | Self::Feeds(_) => vec![whole_file("not-applicable", self)],
        }
    }
}

fn whole_file(code: &str, refused: &RefusedConfig) -> ProblemReport {
    ProblemReport {
        code: code.to_owned(),
        severity: "error",
        line: 1,
        column: 1,
        message: chain(refused),
        help: None,
    }
}

/// Policies the configuration names that cannot be had as it wants them.
///
/// New bytes that are bad are no reason to refuse a configuration whose policies were in force before.
pub(crate) fn unavailable_policies(config: &Config, prepared: &Prepared) -> Vec<ProblemReport> {
    let named = config.policies.iter().filter_map(|policy| {
        let mut prepared = prepared.policies.iter();
        let found = prepared.find(|prepared| prepared.wanted.name == policy.name)?;
        (!found.accepted).then_some((policy, found))
    });
    named
        .filter_map(|(policy, found)| unavailable(policy, found))
        .collect()
}

fn unavailable(policy: &PolicyConfig, prepared: &PreparedPolicy) -> Option<ProblemReport> {
    let (place, problem) = match &prepared.outcome {
        Outcome::InForce | Outcome::HeldBack | Outcome::Fresh(_) => return None,
        Outcome::Unsettled => (policy.source_at, "its file is still being written".to_owned()),
        Outcome::Failed(problem) => {
            let in_params = policy.params_at.filter(|_| problem.is_in_settings());
            let in_pin = policy.sha256_at.filter(|_| problem.is_in_pin());
            (
                in_params.or(in_pin).unwrap_or(policy.source_at),
                chain(&**problem),
            )
        }
    };
    Some(ProblemReport {
        code: "policy-unavailable".to_owned(),
        severity: "error",
        line: place.line,
        column: place.column,
        message: format!("policy `{}`: {problem}", policy.name),
        help: Some(
            "mend the component or its settings; both are looked at again when a file changes".to_owned(),
        ),
    })
}

/// Diagnostics for tools.
pub(crate) fn reports(diagnostics: &Diagnostics) -> Vec<ProblemReport> {
    let report = |item: &conductor_config::Diagnostic| ProblemReport {
        code: item.code.as_str().to_owned(),
        severity: match item.severity() {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        line: item.primary.location.line,
        column: item.primary.location.column,
        message: item.message.clone(),
        help: item.help.clone(),
    };
    diagnostics.items().iter().map(report).collect()
}
