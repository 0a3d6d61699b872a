//! Edits of the configuration file: their results and refusals.

use conductor_config::ConfigChanges;
use local_files::WriteConfigError;
use thiserror::Error;

use super::{PlanError, ProblemReport, ReloadAnswer};

/// Edit of the configuration file.
#[derive(Debug)]
pub struct FileEdit {
    /// The whole new text.
    pub text: String,
    /// Action.
    pub action: FileAction,
}

/// Action on an edited text.
#[derive(Debug)]
pub enum FileAction {
    /// Plan it, and change nothing.
    Check,
    /// Write it and apply it.
    Write {
        /// SHA-256 of the text that was edited.
        expected: String,
        /// Reason that the operator gave.
        reason: Option<String>,
    },
}

/// Result of an edit.
#[derive(Debug)]
pub enum FileAnswer {
    /// Result of a check.
    Checked(Box<CheckReport>),
    /// Written and applied, or refused and not written.
    Written(Box<ReloadAnswer>),
}

/// Result of a check.
#[derive(Debug)]
pub struct CheckReport {
    /// Set if the text would be applied.
    pub valid: bool,
    /// Errors, or warnings of a valid text.
    pub problems: Vec<ProblemReport>,
    /// Changes from the active configuration.
    pub changes: ConfigChanges,
    /// Keys whose new value would need a restart.
    pub needs_restart: Vec<String>,
    /// Text of the file now; the active one if it cannot be read.
    pub current: String,
}

/// Refusal of an edit. The file is as it was.
#[derive(Debug, Error)]
pub enum RefusedEdit {
    /// The file cannot be replaced.
    #[error("failed to write the configuration, which stays as it was")]
    Write(#[from] WriteConfigError),
    /// The file cannot be read.
    #[error("failed to compare the edited file")]
    Read(#[source] PlanError),
    /// The file is not the edited one any more.
    #[error("the file changed since it was read for this edit: it has the SHA-256 {found}; read it again")]
    Moved {
        /// SHA-256 of its text now.
        found: String,
    },
}
