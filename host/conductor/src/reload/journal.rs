//! Journal of the reload thread: notes of its changes, with the cause of the present round.

use admin_pages::control::{ConfigTexts, ProblemReport};
use admin_views::{ChangeCause, ChangeKind, ChangeResult, NewChange, NewText};
use live_updates::{ChangeLog, unix_seconds};
use routing::Generation;

/// Cause of a round, and its log.
#[derive(Debug)]
pub(crate) struct Journal {
    log: ChangeLog,
    texts: ConfigTexts,
    cause: ChangeCause,
    /// Reason that an operator gave.
    by: Option<String>,
}

impl Journal {
    pub(crate) fn new(log: ChangeLog) -> Self {
        Self {
            log,
            texts: ConfigTexts::default(),
            cause: ChangeCause::Start,
            by: None,
        }
    }

    /// Returns the log.
    pub(crate) fn log(&self) -> &ChangeLog {
        &self.log
    }

    /// Returns the history of configuration texts.
    pub(crate) fn texts(&self) -> &ConfigTexts {
        &self.texts
    }

    /// Sets the cause of the changes that follow.
    pub(super) fn begin(&mut self, cause: ChangeCause, by: Option<String>) {
        self.cause = cause;
        self.by = by;
    }

    /// Returns the cause of the present round.
    pub(super) fn cause(&self) -> ChangeCause {
        self.cause
    }

    /// Notes an applied change with the cause of the round.
    pub(super) fn applied(&self, kind: ChangeKind, generation: Generation, summary: impl Into<String>) {
        self.note(kind, self.cause, generation, summary.into());
    }

    /// Notes an applied change with a cause of its own.
    pub(super) fn note(
        &self,
        kind: ChangeKind,
        cause: ChangeCause,
        Generation(generation): Generation,
        summary: String,
    ) {
        let change = NewChange::applied(kind, cause, summary).in_generation(generation);
        let by = self.by.clone().filter(|_| cause == ChangeCause::Api);
        self.log.note(NewChange { by, ..change });
    }

    /// Keeps a text that became active.
    pub(super) fn applied_text(&self, Generation(generation): Generation, text: &str) {
        self.keep(text, Some(generation), Vec::new());
    }

    /// Keeps a refused text with its problems.
    pub(super) fn refused_text(&self, text: &str, problems: &[ProblemReport]) {
        self.keep(text, None, problems.to_vec());
    }

    fn keep(&self, text: &str, generation: Option<u64>, problems: Vec<ProblemReport>) {
        let new = NewText {
            generation,
            cause: self.cause,
            by: self.by.clone(),
            text,
            problems,
        };
        self.texts.lock().add(unix_seconds(), new);
    }

    /// Notes a refused change, with the number of its problems.
    pub(super) fn refused(
        &self,
        kind: ChangeKind,
        cause: ChangeCause,
        Generation(generation): Generation,
        refusal: JournalRefusal,
    ) {
        let change = NewChange::applied(kind, cause, refusal.summary).in_generation(generation);
        self.log.note(NewChange {
            by: self.by.clone().filter(|_| cause == ChangeCause::Api),
            result: ChangeResult::Refused,
            problems: refusal.problems,
            ..change
        });
    }
}

/// Refusal of a change.
#[derive(Debug)]
pub(super) struct JournalRefusal {
    pub(super) summary: String,
    pub(super) problems: usize,
}
