//! Problem report: collects the faults that the section readers find, so that they can continue.

use std::cell::RefCell;
use std::collections::HashSet;

use crate::document::code::{Code, Severity};
use crate::document::diagnostic::{Diagnostic, Diagnostics};
use crate::document::source::{Mark, Source, Span};

/// Most problems kept of one file.
pub(crate) const MOST_PROBLEMS: usize = 1_000;

/// A problem under construction.
#[derive(Debug)]
pub(crate) struct Problem {
    code: Code,
    message: String,
    primary: (Span, String),
    related: Vec<(Span, String)>,
    help: Option<String>,
}

impl Problem {
    pub(crate) fn new(code: Code, span: &Span, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            primary: (span.clone(), String::new()),
            related: Vec::new(),
            help: None,
        }
    }

    /// Sets the label at the position.
    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.primary.1 = label.into();
        self
    }

    /// Adds a related position.
    pub(crate) fn also(mut self, span: &Span, label: impl Into<String>) -> Self {
        self.related.push((span.clone(), label.into()));
        self
    }

    /// Sets the fix.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Sets the fix, if known.
    pub(crate) fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help;
        self
    }
}

/// Collected problems. Shared by all readers of one file, hence the cell.
#[derive(Debug)]
pub(crate) struct Report {
    source: Source,
    problems: RefCell<Vec<Problem>>,
}

impl Report {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            source,
            problems: RefCell::default(),
        }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Adds a problem, unless there are too many. Warnings are dropped first, so a file with an error never looks like
    /// a valid one.
    pub(crate) fn push(&self, problem: Problem) {
        let mut problems = self.problems.borrow_mut();
        let room = match problem.code.severity() {
            Severity::Warning => MOST_PROBLEMS / 2,
            Severity::Error => MOST_PROBLEMS,
        };
        if problems.len() < room {
            problems.push(problem);
        }
    }

    /// Returns `true` if further problems would be dropped.
    pub(crate) fn is_full(&self) -> bool {
        self.problems.borrow().len() >= MOST_PROBLEMS
    }

    /// Returns a position for later diagnostics.
    pub(crate) fn mark(&self, span: &Span) -> Mark {
        self.source.mark(span, String::new())
    }

    /// Drops consequences of broken syntax: diagnostics of broken lines, of missing values, and of anything missing.
    pub(crate) fn forget_consequences(&mut self) {
        let source = &self.source;
        let problems = self.problems.get_mut();
        let is_syntax = |problem: &Problem| problem.code == Code::Syntax;
        let broken: HashSet<usize> = problems
            .iter()
            .filter(|problem| is_syntax(problem))
            .map(|problem| source.locate(problem.primary.0.start).line)
            .collect();
        if broken.is_empty() {
            return;
        }
        problems.retain(|problem| {
            let on_broken_line = broken.contains(&source.locate(problem.primary.0.start).line);
            is_syntax(problem)
                || !(on_broken_line || problem.primary.0.is_empty() || problem.code.rests_on_absence())
        });
    }

    /// Returns `true` if there is a problem of this kind.
    pub(crate) fn has(&self, code: Code) -> bool {
        self.problems.borrow().iter().any(|problem| problem.code == code)
    }

    /// Returns the number of errors.
    pub(crate) fn error_count(&self) -> usize {
        let problems = self.problems.borrow();
        let is_error = |problem: &&Problem| problem.code.severity() == Severity::Error;
        problems.iter().filter(is_error).count()
    }

    /// Returns all diagnostics, in the order of the file.
    pub(crate) fn into_diagnostics(self) -> Diagnostics {
        let Self { source, problems } = self;
        let mark = |(span, label): (Span, String)| source.mark(&span, label);
        let mut items: Vec<Diagnostic> = problems
            .into_inner()
            .into_iter()
            .map(|problem| Diagnostic {
                code: problem.code,
                message: problem.message,
                primary: mark(problem.primary),
                related: problem.related.into_iter().map(mark).collect(),
                help: problem.help,
            })
            .collect();
        items.sort_by_key(|item| item.primary.span.start);
        Diagnostics { source, items }
    }
    /// Returns the first problem as one line.
    pub(crate) fn first_problem(self) -> String {
        let found = self.into_diagnostics();
        let text = found.items().first().map(|problem| match &problem.help {
            Some(help) => format!("{}: {help}", problem.message),
            None => problem.message.clone(),
        });
        text.unwrap_or_default()
    }
}
