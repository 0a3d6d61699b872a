//! Recorder: calls an endpoint of a listener, and keeps the exchange as an operation of OpenAPI.

use std::collections::BTreeMap;

use bytes::Bytes;
use harness::Client;
use http::Method;
use serde_json::{Map, Value, json};

use super::schema::infer;

/// Longest array and longest text of an example.
const ITEMS: usize = 2;
const LETTERS: usize = 72;
/// Content type of JSON.
const JSON: &str = "application/json";
/// Content type of components.
const WASM: &str = "application/wasm";

/// Request of an endpoint, as the document has it.
pub(super) struct Call<'c> {
    pub(super) method: Method,
    /// Path with its parameters in braces.
    pub(super) path: &'c str,
    /// Values of the parameters of the path.
    pub(super) values: &'c [(&'c str, &'c str)],
    pub(super) query: &'c str,
    pub(super) headers: &'c [(&'c str, &'c str)],
    pub(super) body: Option<Value>,
}

impl<'c> Call<'c> {
    pub(super) fn get(path: &'c str) -> Self {
        let (values, query, headers, body) = (&[], "", &[], None);
        Self {
            method: Method::GET,
            path,
            values,
            query,
            headers,
            body,
        }
    }

    pub(super) fn post(path: &'c str, body: Value) -> Self {
        Self {
            method: Method::POST,
            body: Some(body),
            ..Self::get(path)
        }
    }

    pub(super) fn of(mut self, values: &'c [(&'c str, &'c str)]) -> Self {
        self.values = values;
        self
    }

    fn target(&self) -> String {
        let filled = self
            .values
            .iter()
            .fold(self.path.to_owned(), |path, (name, value)| {
                path.replace(&format!("{{{name}}}"), value)
            });
        match self.query {
            "" => filled,
            query => format!("{filled}?{query}"),
        }
    }
}

/// Operations of one listener.
pub(super) struct Recorder {
    pub(super) client: Client,
    /// Header with the key of the listener's changes, if it has one.
    key: Option<(&'static str, &'static str)>,
    pub(super) paths: BTreeMap<String, Map<String, Value>>,
}

impl Recorder {
    pub(super) fn new(client: Client, key: Option<(&'static str, &'static str)>) -> Self {
        Self {
            client,
            key,
            paths: BTreeMap::new(),
        }
    }

    /// Sends the call, records it, and returns the body of its answer: JSON, or `null`.
    pub(super) async fn call(&mut self, call: Call<'_>) -> Value {
        let mut headers = call.headers.to_vec();
        headers.extend(self.key);
        let body = match &call.body {
            Some(body) => {
                headers.push(("content-type", JSON));
                body.to_string()
            }
            None => String::new(),
        };
        let target = call.target();
        let sent = self
            .client
            .stream(call.method.clone(), &target, &headers, Bytes::from(body));
        let answer = sent.await.unwrap();
        let kind = answer.header("content-type").to_owned();
        let kind = kind.split(';').next().unwrap().to_owned();
        let status = answer.status;
        let text = if kind == "text/event-stream" {
            let mut answer = answer;
            let chunk = answer.chunk().await.unwrap().unwrap();
            String::from_utf8_lossy(&chunk).into_owned()
        } else {
            answer.whole().await.unwrap().text()
        };
        assert!(
            status.is_success(),
            "{} {}: {status} {text}",
            call.method,
            call.target()
        );
        let parsed = (kind == JSON).then(|| serde_json::from_str::<Value>(&text).unwrap());
        let content = match &parsed {
            // A document of OpenAPI has a specification of its own.
            Some(page) if page["openapi"].is_string() => {
                json!({ JSON: { "schema": { "type": ["object", "null"] }, "example": page } })
            }
            Some(page) => json!({ JSON: { "schema": infer(page), "example": page } }),
            None if kind.is_empty() => json!({}),
            None => json!({ kind: { "schema": { "type": "string" }, "example": text } }),
        };
        let operation = self.operation(&call, status.as_u16(), &content);
        let methods = self.paths.entry(call.path.to_owned()).or_default();
        methods.insert(call.method.as_str().to_lowercase(), operation);
        parsed.unwrap_or_default()
    }

    fn operation(&self, call: &Call<'_>, status: u16, content: &Value) -> Value {
        let in_path = call
            .values
            .iter()
            .map(|(name, value)| parameter("path", name, value));
        let pairs = call.query.split('&').filter_map(|pair| pair.split_once('='));
        let in_query = pairs.map(|(name, value)| parameter("query", name, value));
        let in_headers = call
            .headers
            .iter()
            .map(|(name, value)| parameter("header", name, value));
        let parameters: Vec<Value> = in_path.chain(in_query).chain(in_headers).collect();
        let words = call.path.split(|letter: char| !letter.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let id = format!("{}_{}", call.method.as_str().to_lowercase(), words.join("_"));
        let mut operation = json!({
            "operationId": id.trim_end_matches('_'),
            "parameters": parameters,
            "responses": {
                status.to_string(): { "description": "The answer", "content": content },
                "default": { "$ref": "#/components/responses/Error" },
            },
        });
        if let Some(body) = &call.body {
            let schema = json!({ "type": "object" });
            operation["requestBody"] = json!({ "content": { JSON: { "schema": schema, "example": body } } });
        }
        operation
    }
}

fn parameter(place: &str, name: &str, value: &str) -> Value {
    json!({
        "name": name, "in": place, "required": place != "query", "schema": { "type": "string" }, "example": value,
    })
}

/// Returns an example with short lists and texts.
pub(super) fn shortened(value: &Value) -> Value {
    match value {
        Value::Object(members) if members.contains_key("openapi") => {
            json!({ "openapi": members["openapi"], "info": members["info"] })
        }
        Value::Array(items) => items.iter().take(ITEMS).map(shortened).collect(),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| (name.clone(), shortened(value)));
            Value::Object(members.collect())
        }
        Value::String(text) if text.chars().count() > LETTERS => {
            let begin: String = text.chars().take(LETTERS).collect();
            Value::String(format!("{begin}..."))
        }
        _ => value.clone(),
    }
}

impl Recorder {
    /// Uploads bytes, and records the call.
    pub(super) async fn upload(&mut self, path: &str, values: &[(&str, &str)], bytes: Vec<u8>) {
        let call = Call {
            method: Method::PUT,
            ..Call::get(path).of(values)
        };
        let mut headers = vec![("content-type", WASM)];
        headers.extend(self.key);
        let target = call.target();
        let sent = self
            .client
            .stream(Method::PUT, &target, &headers, Bytes::from(bytes));
        let answer = sent.await.unwrap().whole().await.unwrap();
        assert!(answer.status.is_success(), "{}", answer.text());
        let page = answer.json().unwrap();
        let content = json!({ JSON: { "schema": infer(&page), "example": page } });
        let mut operation = self.operation(&call, answer.status.as_u16(), &content);
        operation["requestBody"] = json!({ "content": { WASM: {} } });
        let methods = self.paths.entry(path.to_owned()).or_default();
        methods.insert("put".to_owned(), operation);
    }
}
