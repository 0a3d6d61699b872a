//! Edits of the configuration file over HTTP: planned like every reload, then written, then committed.

use admin_pages::control::{
    CheckReport, FileAction, FileAnswer, FileEdit, RefusedEdit, ReloadAnswer, ReloadOutcome,
};
use admin_views::{ChangeCause, ChangeKind, text_sha256};
use conductor_config::{ConfigChanges, restart_keys};

use super::journal::JournalRefusal;
use super::plan::{Planned, RoundFindings};
use super::{RefusedPlan, Reloader, reports};

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
        let report = match self.plan_text(text.to_owned(), &mut RoundFindings::default()) {
            Ok(Planned::Waiting(_)) => return None,
            Ok(Planned::Ready(planned)) => {
                let active = &planned.plan.active;
                let config = &active.config;
                let of_resources = reports(&self.resource_warnings(active));
                CheckReport {
                    valid: true,
                    problems: [reports(&planned.warnings), of_resources].concat(),
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
        let planned = match self.plan_text(text.to_owned(), &mut RoundFindings::default()) {
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
        let text = self.file_text();
        let text = text.map_err(|refused| RefusedEdit::Read(refused.into()))?;
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

    pub(super) fn answer_of(&self, outcome: ReloadOutcome) -> ReloadAnswer {
        ReloadAnswer {
            outcome,
            report: self.status.config(),
        }
    }
}
