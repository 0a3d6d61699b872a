//! Checking a configuration without running it. Pure.

use conductor_config::{Config, Known, Paint};

use crate::builtin;
use crate::reload::reports;
use crate::status::ProblemReport;

/// What there is to say about a configuration.
#[derive(Debug)]
pub struct Checked {
    /// Every error and warning, for tools.
    pub problems: Vec<ProblemReport>,
    /// The same drawn over the lines concerned.
    pub rendered: String,
    /// How many of them are errors.
    pub errors: usize,
}

/// Checks the text of a configuration; `name` is what messages call it.
#[must_use]
pub fn check(name: &str, text: &str) -> Checked {
    let known = Known {
        builtins: &builtin::names(),
        default_policy: builtin::DEFAULT,
    };
    let diagnostics = match Config::parse(name, text, &known) {
        Ok(parsed) => parsed.warnings,
        Err(diagnostics) => diagnostics,
    };
    Checked {
        problems: reports(&diagnostics),
        rendered: diagnostics.render(Paint::Plain),
        errors: diagnostics.error_count(),
    }
}

impl Checked {
    /// One line.
    #[must_use]
    pub fn summary(&self) -> String {
        let warnings = self.problems.len() - self.errors;
        match (self.errors, warnings) {
            (0, 0) => "valid".to_owned(),
            (0, warnings) => format!("valid, {warnings} warning(s)"),
            (errors, 0) => format!("{errors} error(s)"),
            (errors, warnings) => format!("{errors} error(s), {warnings} warning(s)"),
        }
    }
}

/// Every error and warning of a configuration, drawn; empty when there is nothing to say.
#[must_use]
pub fn check_text(name: &str, text: &str) -> String {
    check(name, text).rendered
}
