//! TOML parser: all syntax errors, and the tree of the readable rest.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::document::code::Code;
use crate::document::report::{MOST_PROBLEMS, Problem, Report};
use crate::document::source::{Source, Span};

/// The parser's message for a duplicate key or table.
const DUPLICATE: &str = "duplicate key";

/// Parses `text`, the text of the report's source.
pub(crate) fn parse<'t>(text: &'t str, report: &Report) -> DeTable<'t> {
    let (tree, mistakes) = DeTable::parse_recoverable(text);
    let tree = tree.into_inner();
    for mistake in mistakes.into_iter().take(MOST_PROBLEMS) {
        let span = mistake.span().unwrap_or(text.len()..text.len());
        report.push(if mistake.message() == DUPLICATE {
            duplicate(&span, &tree, report.source())
        } else {
            let cure = cure(mistake.message(), report.source().line_of(span.start));
            let message = format!("not valid TOML: {}", mistake.message());
            Problem::new(Code::Syntax, &span, message).maybe_help(cure.map(str::to_owned))
        });
    }
    tree
}

/// Returns the usual fix of an error that the parser describes in its own terms.
fn cure(message: &str, line: &str) -> Option<&'static str> {
    let is_about = |what: &[&str]| what.iter().any(|what| message.starts_with(what));
    if line.trim_end().ends_with('=') {
        Some("write a value after the `=`")
    } else if is_about(&["invalid basic string", "invalid literal string"]) {
        Some("close the quotes")
    } else if is_about(&[
        "string values must be quoted",
        "invalid float",
        "invalid integer",
        "invalid boolean",
    ]) {
        Some("text stands in quotes: \"...\"")
    } else {
        None
    }
}

fn duplicate(span: &Span, tree: &DeTable<'_>, source: &Source) -> Problem {
    let line = source.line_of(span.start);
    if line.trim_start().starts_with('[') && !header(line).contains('=') {
        let problem = Problem::new(
            Code::DuplicateKey,
            span,
            format!("`{}` is set twice", header(line)),
        )
        .label("again here")
        .help("put all keys of a table under one header");
        return match first_header(header(line), span, source) {
            Some(first) => problem.also(&first, "first here"),
            None => problem,
        };
    }
    let key = &source.text()[source.clamp(span)];
    let problem = Problem::new(Code::DuplicateKey, span, format!("`{key}` is set twice"))
        .label("again here")
        .help("keep one of the two");
    match first_key(key.trim_matches(['"', '\'']), span, tree) {
        Some(first) => problem.also(&first, "first here"),
        None => problem,
    }
}

/// Returns `[pools.a]` of `[pools.a] # comment`.
fn header(line: &str) -> &str {
    line.split_once('#').map_or(line, |(before, _)| before).trim()
}

/// Finds the first of two headers in the text: the parser keeps the last one.
fn first_header(wanted: &str, span: &Span, source: &Source) -> Option<Span> {
    source
        .lines()
        .take_while(|&(start, line)| start + line.len() < span.start)
        .filter(|(_, line)| line.trim_start().starts_with('['))
        .find(|(_, line)| header(line) == wanted)
        .map(|(start, line)| {
            let indent = line.len() - line.trim_start().len();
            start + indent..start + indent + wanted.len()
        })
}

/// Finds the first of two keys in the innermost table that encloses the second: the parser keeps the first one.
fn first_key(name: &str, span: &Span, tree: &DeTable<'_>) -> Option<Span> {
    let mut best: Option<(usize, Span)> = None;
    visit(tree, &(0..0), &mut |table, begins| {
        if begins > span.start {
            return;
        }
        let found = table.get_key_value(name).map(|(key, _)| key.span());
        let Some(first) = found.filter(|first| first.end <= span.start) else {
            return;
        };
        if best.as_ref().is_none_or(|&(other, _)| begins >= other) {
            best = Some((begins, first));
        }
    });
    best.map(|(_, first)| first)
}

/// Calls `seen` for every table with the byte where its span begins.
fn visit(table: &DeTable<'_>, span: &Span, seen: &mut impl FnMut(&DeTable<'_>, usize)) {
    seen(table, span.start);
    for value in table.values() {
        visit_value(value, seen);
    }
}

fn visit_value(value: &Spanned<DeValue<'_>>, seen: &mut impl FnMut(&DeTable<'_>, usize)) {
    match value.get_ref() {
        DeValue::Table(table) => visit(table, &value.span(), seen),
        DeValue::Array(items) => items.iter().for_each(|item| visit_value(item, seen)),
        _ => {}
    }
}
