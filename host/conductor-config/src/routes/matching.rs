//! Route match: the conditions that a request must meet.

use std::collections::HashMap;

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::source::Span;
use crate::document::value::Text;

/// Conditions of a route; a request must meet all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteMatch {
    /// Globs (`*`, `?`), one of which its model matches; empty for any request, also one without a model.
    pub models: Vec<String>,
    /// Exact path.
    pub path: Option<String>,
    /// Required headers: names in lower case, exact values.
    pub headers: Vec<(String, String)>,
}

pub(super) fn read_match(mut section: Section<'_>) -> (RouteMatch, Vec<Text<'_>>) {
    let report = section.report();
    let invalid = |span: &Span, message: &str, help: &str| {
        report.push(Problem::new(Code::InvalidValue, span, message).help(help));
    };
    let model = section.item("model");
    let models = model
        .as_ref()
        .and_then(|item| item.text_or_texts())
        .unwrap_or_default();
    if let Some(item) = model.filter(|item| item.value.as_array().is_some_and(|list| list.is_empty())) {
        invalid(
            &item.span,
            "a route for no model matches nothing",
            "leave `model` out to match every model",
        );
    }
    for empty in models.iter().filter(|model| model.text.is_empty()) {
        invalid(
            &empty.span,
            "an empty model matches nothing",
            "leave `model` out to match every model",
        );
    }
    let path = section.text("path");
    if let Some(path) = &path
        && (!path.text.starts_with('/') || path.text.contains(['*', '?', '#']))
    {
        invalid(
            &path.span,
            "`path` is compared exactly, with the request's path up to its `?`",
            "write a whole path, for example \"/v1/chat/completions\"",
        );
    }
    let headers = section
        .section("header", "`header` of `match`")
        .map(|section| read_headers(&section))
        .unwrap_or_default();
    section.finish();
    let matches = RouteMatch {
        models: models.iter().map(|model| model.text.to_owned()).collect(),
        path: path.map(|path| path.text.to_owned()),
        headers,
    };
    (matches, models)
}

fn read_headers(section: &Section<'_>) -> Vec<(String, String)> {
    let mut seen: HashMap<String, Span> = HashMap::new();
    let mut headers = Vec::new();
    for entry in section.entries() {
        let name = entry.key.to_ascii_lowercase();
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(is_token) {
            entry.report.push(
                Problem::new(
                    Code::InvalidName,
                    &entry.key_span,
                    format!("`{}` cannot name a header", entry.key),
                )
                .help("use letters, digits and dashes"),
            );
        }
        if let Some(first) = seen.insert(name.clone(), entry.key_span.clone()) {
            entry.report.push(
                Problem::new(
                    Code::ConflictingKeys,
                    &entry.key_span,
                    format!("the header `{name}` is set twice"),
                )
                .label("again here")
                .also(&first, "first here")
                .help("header names are case-insensitive: keep one of the two"),
            );
        }
        if let Some(value) = entry.text() {
            if value.text.chars().any(char::is_control) {
                entry.report.push(
                    Problem::new(
                        Code::InvalidValue,
                        &value.span,
                        format!("no header can have this value of `{name}`: it has a control character"),
                    )
                    .help("write the value as a client sends it"),
                );
            }
            headers.push((name, value.text.to_owned()));
        }
    }
    headers
}
