//! `/openapi.json`: an OpenAPI 3.1 document, generated from the tables of the dispatcher.

use inference_api::{Endpoint, EndpointSpec, ModelField};
use serde_json::{Map, Value, json};

use crate::request::responses::RESPONSE_PAGES;

/// Methods described for a configured path, which accepts any.
const FORWARDED_METHODS: [&str; 2] = ["get", "post"];

/// Description of a page that the router itself answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageDoc {
    /// Path in the syntax of axum.
    pub(crate) path: &'static str,
    /// Allowed methods, in the form of the `Allow` header.
    pub(crate) allow: &'static str,
    /// One-line summary.
    pub(crate) summary: &'static str,
}

/// Builds the document of all served paths and methods; `own` are the router's own pages.
pub(crate) fn document(forward: &[Box<str>], own: &[PageDoc]) -> Value {
    let served = Endpoint::ALL.iter().map(|endpoint| {
        let (spec, method) = (endpoint.spec(), endpoint.method().to_ascii_lowercase());
        let operation = operation(spec, spec.path, &method);
        (spec.path.to_owned(), json!({ method: operation }))
    });
    let own = own.iter().map(|page| {
        (
            template(page.path),
            operations(page.path, page.allow, page.summary),
        )
    });
    let kept = RESPONSE_PAGES.iter().map(|page| {
        (
            page.path.to_owned(),
            operations(page.path, page.allow, page.summary),
        )
    });
    let forwarded = forward.iter().map(|path| {
        let operation = |method| (method, operation(Endpoint::Forwarded.spec(), path, method));
        let operations: Map<String, Value> = FORWARDED_METHODS
            .map(operation)
            .into_iter()
            .map(|(method, operation)| (method.to_owned(), operation))
            .collect();
        (path.to_string(), Value::Object(operations))
    });
    let paths: Map<String, Value> = served.chain(own).chain(kept).chain(forwarded).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Conductor",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Requests that name a model are routed to a worker. Responses have the engine's own format.",
        },
        "paths": paths,
        "components": { "schemas": { "Error": error_schema() } },
    })
}

/// Describes an endpoint that workers serve: the fields that the router reads. The engine reads the rest.
fn operation(spec: &EndpointSpec, path: &str, method: &str) -> Value {
    let mut fields = Map::new();
    fields.insert(
        "model".to_owned(),
        json!({ "type": "string", "description": "May be left out where one model is served" }),
    );
    if spec.streams {
        fields.insert(
            "stream".to_owned(),
            json!({ "type": "boolean", "default": false }),
        );
    }
    let schema = json!({ "type": "object", "properties": fields, "additionalProperties": true });
    let body_type = match spec.model {
        ModelField::Json => "application/json",
        ModelField::Form => "multipart/form-data",
        ModelField::Any | ModelField::Query => "*/*",
    };
    let mut answer = json!({ "description": "The worker's answer", "content": { "*/*": {} } });
    if spec.streams {
        answer["content"]["text/event-stream"] = json!({});
    }
    let mut operation = json!({
        "operationId": operation_id(path, method),
        "summary": spec.summary,
        "responses": { "200": answer, "default": error_answer() },
    });
    if spec.upgrades {
        let answer = json!({ "description": "The connection is a WebSocket to a worker from then on" });
        operation["responses"] = json!({ "101": answer, "default": error_answer() });
    }
    if spec.model == ModelField::Query {
        operation["parameters"] = json!([
            { "name": "model", "in": "query", "required": false, "schema": { "type": "string" } },
        ]);
    }
    if method == "post" {
        operation["requestBody"] =
            json!({ "required": true, "content": { body_type: { "schema": schema } } });
    }
    operation
}

/// Describes a page without a request body, by its methods in the form of `Allow`.
fn operations(path: &str, allow: &str, summary: &str) -> Value {
    let parameters: Vec<Value> = parameter(path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .into_iter()
        .collect();
    let operations: Map<String, Value> = allow
        .split(", ")
        .map(|method| {
            let method = method.to_ascii_lowercase();
            let operation = json!({
                "operationId": operation_id(path, &method),
                "summary": summary,
                "parameters": parameters,
                "responses": { "200": { "description": "The answer" }, "default": error_answer() },
            });
            (method, operation)
        })
        .collect();
    Value::Object(operations)
}

/// Returns the parameter of a path in axum's syntax: `{id}`, or `{*id}` for one with slashes.
fn parameter(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once('{')?;
    let (name, _) = rest.split_once('}')?;
    Some(name.trim_start_matches('*'))
}

/// Converts a path to OpenAPI's syntax.
fn template(path: &str) -> String {
    path.replace("{*", "{")
}

fn operation_id(path: &str, method: &str) -> String {
    let words = path.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    format!("{method}_{}", words.join("_"))
}

fn error_answer() -> Value {
    let schema = json!({ "$ref": "#/components/schemas/Error" });
    json!({ "description": "An error", "content": { "application/json": { "schema": schema } } })
}

fn error_schema() -> Value {
    let text = || json!({ "type": "string" });
    let optional = json!({ "type": ["string", "null"] });
    let fields = json!({ "message": text(), "type": text(), "param": optional, "code": text() });
    json!({
        "type": "object",
        "properties": { "error": { "type": "object", "properties": fields, "required": ["message", "type", "code"] } },
        "required": ["error"],
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use inference_api::{EndpointClass, EndpointWork, PromptField, Reserved, reserved};

    use super::*;
    use crate::edge::control_routes::own_docs;

    #[test]
    fn the_document_has_every_path_of_the_tables_and_no_other() {
        let document = document(&["/v1/custom".into()], &own_docs());
        let described: BTreeSet<&str> = document["paths"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let own: Vec<String> = own_docs().iter().map(|page| template(page.path)).collect();
        let served = Endpoint::ALL.iter().map(|endpoint| endpoint.path());
        let kept = RESPONSE_PAGES.iter().map(|page| page.path);
        let all: BTreeSet<&str> = served
            .chain(kept)
            .chain(own.iter().map(String::as_str))
            .chain(["/v1/custom"])
            .collect();
        assert_eq!(described, all);
    }

    #[test]
    fn the_page_of_endpoints_has_every_row_of_the_tables_and_no_other() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../host/docs/api/endpoints.md");
        let page = std::fs::read_to_string(path).unwrap();
        let rows: BTreeSet<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let served = Endpoint::ALL.iter().map(|endpoint| row(endpoint.spec()));
        let docs = own_docs();
        let own = docs.iter().map(|page| {
            format!(
                "| `{}` | {} | {} |",
                template(page.path),
                page.allow,
                page.summary
            )
        });
        let kept = RESPONSE_PAGES
            .iter()
            .map(|page| format!("| `{}` | {} | {} |", page.path, page.allow, page.summary));
        let expected: Vec<String> = served.chain(own).chain(kept).collect();
        for row in &expected {
            assert!(
                rows.contains(row.as_str()),
                "host/docs/api/endpoints.md misses this row:\n{row}"
            );
        }
        assert_eq!(
            rows.len(),
            expected.len(),
            "host/docs/api/endpoints.md has rows of no table"
        );
    }

    /// Formats a row of the page.
    fn row(spec: &EndpointSpec) -> String {
        let prompt = match spec.prompt {
            _ if spec.work == EndpointWork::Tokenizer => "-",
            PromptField::Messages | PromptField::AnthropicMessages => "`messages`",
            PromptField::Prompt => "`prompt`",
            PromptField::Input => "`input`, `messages`",
            PromptField::Response => "`input`",
            PromptField::Tokens => "`token_ids`, `input_ids`, `text`",
            PromptField::Any => "`messages`, `prompt`, `input`",
            PromptField::Untokenized => "estimated",
        };
        let model = match spec.model {
            ModelField::Json => "JSON",
            ModelField::Form => "form field",
            ModelField::Any => "either",
            ModelField::Query => "query",
        };
        let yes = |is: bool| if is { "yes" } else { "no" };
        let (_, class) = EndpointClass::ALL[spec.class as usize];
        let (streams, splits) = (yes(spec.streams), yes(spec.splits));
        let EndpointSpec { path, summary, .. } = spec;
        format!("| `{path}` | {summary} | {model} | {prompt} | {streams} | {splits} | {class} |")
    }

    #[test]
    fn every_operation_has_an_id_of_its_own() {
        let document = document(&["/v1/custom".into()], &own_docs());
        let paths = document["paths"].as_object().unwrap();
        let operations = paths
            .values()
            .flat_map(|methods| methods.as_object().unwrap().values());
        let ids: Vec<&str> = operations
            .map(|operation| operation["operationId"].as_str().unwrap())
            .collect();
        let distinct: BTreeSet<&&str> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{ids:?}");
    }

    #[test]
    fn no_configuration_may_forward_a_page_of_the_routers_own() {
        for page in own_docs() {
            let path = page.path.split('{').next().unwrap();
            assert!(matches!(reserved(path), Some(Reserved::Own)), "{path}");
        }
    }
}
