//! Diagnostics: one error or warning, and all of a file.

use std::fmt;

use crate::document::code::{Code, Severity};
use crate::document::render::{self, Paint};
use crate::document::source::{Mark, Source};

/// A diagnostic: the fault, its position and its fix.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Stable kind.
    pub code: Code,
    /// The fault, in a sentence without a full stop.
    pub message: String,
    /// Position.
    pub primary: Mark,
    /// Related positions, for example the first of two duplicates.
    pub related: Vec<Mark>,
    /// The fix; may have several lines.
    pub help: Option<String>,
}

impl Diagnostic {
    /// Creates a diagnostic of a fault that appears when the configuration is used, at a position kept by the
    /// configuration.
    #[must_use]
    pub fn new(code: Code, at: &Mark, message: impl Into<String>, help: Option<String>) -> Self {
        Self {
            code,
            message: message.into(),
            primary: at.clone(),
            related: Vec::new(),
            help,
        }
    }

    /// Returns `true` if the configuration cannot be used.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// All diagnostics of a file, in the order of its lines. As an error type it stands for a file with errors; it also
/// carries the warnings of a valid one. At most a thousand are kept.
#[derive(Debug, Clone)]
pub struct Diagnostics {
    pub(crate) source: Source,
    pub(crate) items: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Creates diagnostics in addition to those of parsing. Positions are those of the [`Config`](crate::Config)
    /// parsed from this very text.
    #[must_use]
    pub fn new(name: &str, text: &str, mut items: Vec<Diagnostic>) -> Self {
        let source = Source::new(name, text);
        for mark in items.iter_mut().map(|item| &mut item.primary) {
            *mark = source.mark(&mark.span, std::mem::take(&mut mark.label));
        }
        items.sort_by_key(|item| item.primary.span.start);
        Self { source, items }
    }

    /// Returns the file's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// Returns all of them, in the order of the file's lines.
    #[must_use]
    pub fn items(&self) -> &[Diagnostic] {
        &self.items
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the number of errors.
    #[must_use]
    pub fn error_count(&self) -> usize {
        self.count(Severity::Error)
    }

    /// Returns the number of warnings.
    #[must_use]
    pub fn warning_count(&self) -> usize {
        self.count(Severity::Warning)
    }

    /// Renders all of them over their source lines. Ends with a newline unless empty.
    #[must_use]
    pub fn render(&self, paint: Paint) -> String {
        render::render(&self.source, &self.items, paint)
    }

    fn count(&self, severity: Severity) -> usize {
        self.items
            .iter()
            .filter(|item| item.severity() == severity)
            .count()
    }
}

/// `` `conductor.toml` has 2 errors and 1 warning; the first: 3:1 unknown key `lisen` in `[server]` ``
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted =
            |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        write!(
            f,
            "`{}` has {}",
            self.name(),
            counted(self.error_count(), "error")
        )?;
        if self.warning_count() > 0 {
            write!(f, " and {}", counted(self.warning_count(), "warning"))?;
        }
        let first_error = self.items.iter().find(|item| item.severity() == Severity::Error);
        if let Some(first) = first_error.or(self.items.first()) {
            write!(f, "; the first: {} {}", first.primary.location, first.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
