//! One mistake, and all mistakes of a file.

use std::fmt;

use crate::code::{Code, Severity};
use crate::render::{self, Paint};
use crate::source::{Location, Source, Span};

/// A marked place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Where it begins.
    pub location: Location,
    /// What is to be said about it; may be empty.
    pub label: String,
    pub(crate) span: Span,
}

impl Mark {
    /// Of the whole file: where it begins.
    #[must_use]
    pub fn beginning() -> Self {
        Self {
            location: Location { line: 1, column: 1 },
            label: String::new(),
            span: 0..0,
        }
    }
}

/// A mistake: what, where, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Its stable kind.
    pub code: Code,
    /// What is wrong, in a sentence without a full stop.
    pub message: String,
    /// Where.
    pub primary: Mark,
    /// Other places that have to do with it, as the first of two duplicates.
    pub related: Vec<Mark>,
    /// How to mend it; may have several lines.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A mistake that only shows when the configuration is put to use, at a place that the configuration has kept.
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

    /// Whether it stops the configuration from being used.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// Everything there is to say about a file, in the order of its lines. As an error it stands for a file with
/// mistakes; the same type carries the warnings of a good one. At most a thousand are kept.
#[derive(Debug, Clone)]
pub struct Diagnostics {
    pub(crate) source: Source,
    pub(crate) items: Vec<Diagnostic>,
}

impl Diagnostics {
    /// What there is to say about a file besides its mistakes. Its places are those of the [`Config`](crate::Config) that was parsed
    /// from this very text.
    #[must_use]
    pub fn new(name: &str, text: &str, mut items: Vec<Diagnostic>) -> Self {
        let source = Source::new(name, text);
        for mark in items.iter_mut().map(|item| &mut item.primary) {
            *mark = source.mark(&mark.span, std::mem::take(&mut mark.label));
        }
        items.sort_by_key(|item| item.primary.span.start);
        Self { source, items }
    }

    /// The name the file was parsed under.
    #[must_use]
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// All of them, errors and warnings, in the order of the file's lines.
    #[must_use]
    pub fn items(&self) -> &[Diagnostic] {
        &self.items
    }

    /// Whether there is nothing to say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many of them are errors.
    #[must_use]
    pub fn error_count(&self) -> usize {
        self.count(Severity::Error)
    }

    /// How many of them are warnings.
    #[must_use]
    pub fn warning_count(&self) -> usize {
        self.count(Severity::Warning)
    }

    /// All of them drawn over the lines they are about. Ends with a newline unless there is nothing to say.
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
