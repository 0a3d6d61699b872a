//! Edits of the configuration file over HTTP: planned like every reload, then written, then committed.

use admin_views::{ChangeCause, ChangeKind, text_sha256};
use conductor_config::{ConfigChanges, restart_keys};
use local_files::WriteConfigError;
use thiserror::Error;

use super::journal::JournalRefusal;
use super::plan::{Planned, Seen};
use super::{RefusedPlan, ReloadAnswer, ReloadOutcome, Reloader, reports};
use crate::status::ProblemReport;

/// Edit of the configuration file.
#[derive(Debug)]
pub(crate) struct FileEdit {
    /// The whole new text.
    pub(crate) text: String,
    /// Action.
    pub(crate) action: FileAction,
}

/// Action on an edited text.
#[derive(Debug)]
pub(crate) enum FileAction {
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
pub(crate) enum FileAnswer {
    Checked(Box<CheckReport>),
    /// Written and applied, or refused and not written.
    Written(Box<ReloadAnswer>),
}

/// Result of a check.
#[derive(Debug)]
pub(crate) struct CheckReport {
    /// Set if the text would be applied.
    pub(crate) valid: bool,
    /// Errors, or warnings of a valid text.
    pub(crate) problems: Vec<ProblemReport>,
    /// Changes from the active configuration.
    pub(crate) changes: ConfigChanges,
    /// Keys whose new value would need a restart.
    pub(crate) needs_restart: Vec<String>,
    /// Text of the file now; the active one if it cannot be read.
    pub(crate) current: String,
}

/// Refusal of an edit. The file is as it was.
#[derive(Debug, Error)]
pub(crate) enum RefusedEdit {
    /// The file cannot be replaced.
    #[error("failed to write the configuration, which stays as it was")]
    Write(#[from] WriteConfigError),
    /// The file cannot be read.
    #[error("failed to compare the edited file")]
    Read(#[source] RefusedPlan),
    /// The file is not the edited one any more.
    #[error("the file changed since it was read for this edit: it has the SHA-256 {found}; read it again")]
    Moved {
        /// SHA-256 of its text now.
        found: String,
    },
}

impl Reloader {
    /// Makes or checks an edit. Returns `None` if it needs a policy that is being compiled; it is retried once that is
    /// done.
    pub(super) fn edit_file(&mut self, edit: &FileEdit) -> Result<Option<FileAnswer>, RefusedEdit> {
        match &edit.action {
            FileAction::Check => {
                let checked = self.check_edit(&edit.text);
                Ok(checked.map(|report| FileAnswer::Checked(Box::new(report))))
            }
            FileAction::Write { expected, reason } => {
                self.journal.begin(ChangeCause::Api, reason.clone());
                let written = self.write_edit(&edit.text, expected)?;
                Ok(written.map(|answer| FileAnswer::Written(Box::new(answer))))
            }
        }
    }

    fn check_edit(&mut self, text: &str) -> Option<CheckReport> {
        let current = self.source.read().unwrap_or_else(|_| self.active.text.clone());
        let report = match self.plan_text(text.to_owned(), &mut Seen::default()) {
            Ok(Planned::Waiting(_)) => return None,
            Ok(Planned::Ready(planned)) => {
                let config = &planned.plan.active.config;
                CheckReport {
                    valid: true,
                    problems: reports(&planned.warnings),
                    changes: ConfigChanges::between(&self.active.config, config),
                    needs_restart: restart_keys(&self.at_start, config),
                    current,
                }
            }
            Err(refused) => CheckReport {
                valid: false,
                problems: refused.reason().problems(),
                changes: ConfigChanges::default(),
                needs_restart: Vec::new(),
                current,
            },
        };
        Some(report)
    }

    fn write_edit(&mut self, text: &str, expected: &str) -> Result<Option<ReloadAnswer>, RefusedEdit> {
        self.source.check_writable()?;
        if self.unmoved_text(expected)? == text && self.active.text == text {
            return Ok(Some(self.answer_of(ReloadOutcome::Unchanged)));
        }
        let planned = match self.plan_text(text.to_owned(), &mut Seen::default()) {
            Ok(Planned::Ready(planned)) => planned,
            Ok(Planned::Waiting(_)) => return Ok(None),
            Err(refused) => return Ok(Some(self.refuse_edit(&refused, text))),
        };
        // Another edit may have come while the text was planned.
        self.unmoved_text(expected)?;
        self.source.replace(text)?;
        let outcome = self.apply_text(*planned);
        self.report_policies();
        Ok(Some(self.answer_of(outcome)))
    }

    /// Returns the text of the file if it is still the edited one.
    fn unmoved_text(&self, expected: &str) -> Result<String, RefusedEdit> {
        let text = self.file_text().map_err(RefusedEdit::Read)?;
        let found = text_sha256(&text);
        match found == expected {
            true => Ok(text),
            false => Err(RefusedEdit::Moved { found }),
        }
    }

    /// Notes a refused edit. The file and its problems are as before.
    fn refuse_edit(&self, refused: &RefusedPlan, text: &str) -> ReloadAnswer {
        let (step, problems) = (refused.step(), refused.reason().problems());
        self.journal.refused_text(text, &problems);
        let refusal = JournalRefusal {
            summary: format!("an edit over HTTP was refused while {step}, and not written"),
            problems: problems.len(),
        };
        let generation = self.active.generation;
        self.journal
            .refused(ChangeKind::ConfigRefused, ChangeCause::Api, generation, refusal);
        self.answer_of(ReloadOutcome::Refused { step, problems })
    }

    fn answer_of(&self, outcome: ReloadOutcome) -> ReloadAnswer {
        ReloadAnswer {
            outcome,
            report: self.status.config(),
        }
    }
}
