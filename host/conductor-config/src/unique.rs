//! Values that only one worker may have.

use std::collections::HashMap;

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::source::Span;

/// Claims `value`. Returns `false` and reports it if another one has it. `what` is as in "the URL `x` is used twice".
pub(crate) fn claim(
    taken: &mut HashMap<String, Span>,
    value: &str,
    span: &Span,
    code: Code,
    what: &str,
    report: &Report,
) -> bool {
    if let Some(first) = taken.get(value) {
        report.push(
            Problem::new(code, span, format!("the {what} `{value}` is used twice"))
                .label("again here")
                .also(first, "first here")
                .help(format!("each {what} belongs to one worker, over all pools")),
        );
        return false;
    }
    taken.insert(value.to_owned(), span.clone());
    true
}
