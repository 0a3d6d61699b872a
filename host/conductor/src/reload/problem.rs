//! Reasons for refusing a configuration, for logs, `/admin/config` and `conductor check`.

use std::io;

use admin_pages::control::ProblemReport;
use conductor_config::{Code, Diagnostic, Diagnostics, Location, Paint, Severity};
use kv_feed::FeedError;
use proxy::SnapshotError;
use thiserror::Error;
use trace_export::ExportPlanError;
use tracing::warn;
use worker_sources::SourcesError;

use crate::compose::{BrokenPipeline, NoCluster};
use crate::listeners::ListenError;
use local_files::ReadConfigError;
use logging::LogFilterError;
use observability::error_chain;

/// Refusal of a configuration.
#[derive(Debug, Error)]
pub enum RefusedConfig {
    /// The configuration cannot be read.
    #[error(transparent)]
    Read(ReadConfigError),
    /// The configuration has mistakes.
    #[error("the configuration has {} mistakes:\n{}", .0.error_count(), .0.render(Paint::Plain))]
    Invalid(Diagnostics),
    /// The configuration needs unavailable policies.
    #[error("the configuration needs unavailable policies:\n{}", .0.render(Paint::Plain))]
    Policies(Diagnostics),
    /// Keys that it names cannot be had.
    #[error("the configuration needs unavailable keys:\n{}", .0.render(Paint::Plain))]
    Key(Diagnostics),
    /// Certificates that it names, their keys or authorities, are no good.
    #[error("the configuration needs unavailable certificates:\n{}", .0.render(Paint::Plain))]
    Certificate(Diagnostics),
    /// Tokenizers that it names cannot be had.
    #[error("the configuration needs unavailable tokenizers:\n{}", .0.render(Paint::Plain))]
    Tokenizers(Diagnostics),
    /// The log level is invalid.
    #[error(transparent)]
    LogLevel(LogFilterError),
    /// A pipeline cannot be built, which the checks of the configuration should have foreseen.
    #[error("failed to set up the request path")]
    Pipeline(#[source] BrokenPipeline),
    /// The request path cannot be built, which they should have foreseen too.
    #[error("failed to set up the request path")]
    Snapshot(#[source] SnapshotError),
    /// The threads that write the decision log and the shadow log cannot be started.
    #[error("failed to start the thread that writes a decision log")]
    Record(#[source] io::Error),
    /// The collector of traces cannot be used.
    #[error("failed to prepare the export of traces")]
    Traces(#[source] ExportPlanError),
    /// A socket is moved to an address that cannot be bound.
    #[error(transparent)]
    Listen(ListenError),
    /// The event feeds refuse it.
    #[error("failed to follow the event feeds")]
    Feeds(#[source] FeedError),
    /// A source of workers needs a cluster around the router.
    #[error(transparent)]
    NoCluster(NoCluster),
    /// The thread of the sources of workers cannot be started.
    #[error("failed to prepare the sources of workers")]
    Sources(#[source] SourcesError),
    /// A test makes the step fail.
    #[error("failed on purpose")]
    Fault,
}

impl RefusedConfig {
    /// Returns the errors for tools.
    pub(crate) fn problems(&self) -> Vec<ProblemReport> {
        match self {
            Self::Invalid(diagnostics)
            | Self::Policies(diagnostics)
            | Self::Key(diagnostics)
            | Self::Certificate(diagnostics)
            | Self::Tokenizers(diagnostics) => reports(diagnostics),
            Self::Read(ReadConfigError::NotUtf8(diagnostics)) => reports(diagnostics),
            Self::Read(_) => vec![whole_file("unreadable", self)],
            Self::LogLevel(_)
            | Self::Pipeline(_)
            | Self::Snapshot(_)
            | Self::Record(_)
            | Self::Traces(_)
            | Self::Feeds(_)
            | Self::NoCluster(_)
            | Self::Sources(_)
            | Self::Fault => vec![whole_file("not-applicable", self)],
            Self::Listen(error) => {
                let mut problem = whole_file("not-applicable", self);
                if let Some(Location { line, column }) = error.at {
                    (problem.line, problem.column) = (line, column);
                }
                vec![problem]
            }
        }
    }
}

fn whole_file(code: &str, refused: &RefusedConfig) -> ProblemReport {
    ProblemReport {
        code: code.to_owned(),
        severity: "error",
        line: 1,
        column: 1,
        message: error_chain(refused),
        help: None,
    }
}

/// Logs the warnings about a configuration.
pub(crate) fn log_warnings(warnings: &Diagnostics) {
    // Those of the policy folder are logged where they are looked for, also while the text stays the same.
    let is_of_folder = |warning: &ProblemReport| warning.code == Code::IgnoredPolicyFile.as_str();
    for warning in reports(warnings)
        .into_iter()
        .filter(|warning| !is_of_folder(warning))
    {
        let ProblemReport {
            line,
            column,
            message,
            help,
            ..
        } = warning;
        let help = help.map(|help| help.replace('\n', " "));
        warn!(line, column, help, "configuration: {message}");
    }
}

/// Diagnostics for tools.
pub(crate) fn reports(diagnostics: &Diagnostics) -> Vec<ProblemReport> {
    diagnostics.items().iter().map(report).collect()
}

/// Returns one diagnostic for tools.
pub(crate) fn report(item: &Diagnostic) -> ProblemReport {
    ProblemReport {
        code: item.code.as_str().to_owned(),
        severity: match item.severity() {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        line: item.primary.location.line,
        column: item.primary.location.column,
        message: item.message.clone(),
        help: item.help.clone(),
    }
}
