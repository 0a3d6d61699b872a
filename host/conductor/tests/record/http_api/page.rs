//! Page of the book: each operation of the documents with its request and its answer.

use std::fmt::Write as _;

use serde_json::Value;

/// Longest line of an example.
const WIDTH: usize = 112;

/// Listener of the page: its document, title, address and introduction.
pub(super) struct Section<'s> {
    pub(super) name: &'s str,
    pub(super) title: &'s str,
    pub(super) about: &'s str,
    pub(super) document: &'s Value,
}

/// Returns the page.
pub(super) fn page(sections: &[Section<'_>]) -> String {
    let mut page = "# Reference of the HTTP API\n\n    UPDATE_API=1 cargo nextest run -p conductor http_api\n\n\
        The command writes this page and its OpenAPI 3.1 documents from the answers of a running router.\n\
        A test compares the shape of each answer with the documents.\n\
        Lists are cut to two items here, and long texts are cut.\n\
        Keys are sent as `X-API-Key`, or to the indexer as `Authorization: Bearer KEY`.\n\
        [Errors](errors.md) have one shape. The inference endpoints are on [a page of their own](endpoints.md).\n"
        .to_owned();
    for section in sections {
        let Section {
            name,
            title,
            about,
            document,
        } = section;
        let _ = write!(
            page,
            "\n## {title}\n\n{about}\nDocument: [openapi/{name}.json](openapi/{name}.json).\n"
        );
        for (path, methods) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in methods.as_object().into_iter().flatten() {
                write_operation(&mut page, (name, path, method), operation);
            }
        }
    }
    page
}

/// Writes an operation, which is named by its listener, path and method.
fn write_operation(page: &mut String, (listener, path, method): (&str, &str, &str), operation: &Value) {
    let method = method.to_uppercase();
    let _ = write!(page, "\n### `{method} {path}` ({listener})\n\n");
    let about = operation["summary"].as_str().unwrap_or_default();
    let mut letters = about.chars();
    if let Some(first) = letters.next() {
        let _ = write!(
            page,
            "{}{}.\n\n",
            first.to_uppercase(),
            letters.as_str().trim_end_matches('.')
        );
    }
    let mut target = path.to_owned();
    let mut query = Vec::new();
    let mut headers = Vec::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let text = |key: &str| parameter[key].as_str().unwrap_or_default();
        match text("in") {
            "path" => target = target.replace(&format!("{{{}}}", text("name")), text("example")),
            "query" => query.push(format!("{}={}", text("name"), text("example"))),
            _ => headers.push(format!("{}: {}", text("name"), text("example"))),
        }
    }
    if !query.is_empty() {
        target = format!("{target}?{}", query.join("&"));
    }
    let _ = writeln!(page, "```http\n{method} {target}");
    for header in headers {
        let _ = writeln!(page, "{header}");
    }
    for (kind, body) in operation["requestBody"]["content"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let _ = writeln!(page, "content-type: {kind}");
        if !body["example"].is_null() {
            let _ = writeln!(page, "\n{}", layout(&body["example"], 0));
        }
    }
    page.push_str("```\n");
    let answers = operation["responses"].as_object().into_iter().flatten();
    for (status, answer) in answers.filter(|(status, _)| *status != "default") {
        let content = answer["content"].as_object().into_iter().flatten().next();
        let Some((kind, body)) = content else {
            let _ = write!(page, "\nAnswer {status}, without a body.\n");
            continue;
        };
        let example = match body["example"].as_str() {
            Some(text) => text.trim_end().to_owned(),
            None => layout(&body["example"], 0),
        };
        let language = if kind == "application/json" {
            "json"
        } else {
            "text"
        };
        let _ = write!(
            page,
            "\nAnswer {status}, `{kind}`:\n\n```{language}\n{example}\n```\n"
        );
    }
}

/// Returns JSON with each value on one line that fits.
pub(super) fn layout(value: &Value, depth: usize) -> String {
    let line = value.to_string();
    if line.len() + 2 * depth <= WIDTH {
        return line;
    }
    let (inner, outer) = ("  ".repeat(depth + 1), "  ".repeat(depth));
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items
                .iter()
                .map(|item| format!("{inner}{}", layout(item, depth + 1)))
                .collect();
            format!("[\n{}\n{outer}]", items.join(",\n"))
        }
        Value::Object(members) => {
            let member =
                |(name, value): (&String, &Value)| format!("{inner}\"{name}\": {}", layout(value, depth + 1));
            let members: Vec<String> = members.iter().map(member).collect();
            format!("{{\n{}\n{outer}}}", members.join(",\n"))
        }
        _ => line,
    }
}
