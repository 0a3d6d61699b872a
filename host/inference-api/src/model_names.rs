//! Model names: those in a worker's `/v1/models`, and errors of a worker that does not serve a model.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

/// Most names of one list.
pub const MOST_MODEL_NAMES: usize = 2_048;
/// Longest name, in bytes.
pub const LONGEST_MODEL_NAME: usize = 256;

/// A model list that cannot be used.
#[derive(Debug, Error)]
pub enum ModelNamesError {
    /// Not a list of models.
    #[error("read a model list")]
    Invalid(#[source] serde_json::Error),
    /// Too many names.
    #[error("keep the names of {count} models, more than {MOST_MODEL_NAMES}")]
    TooMany {
        /// Their number.
        count: usize,
    },
    /// A name that is too long.
    #[error("keep a model name of {length} bytes, more than {LONGEST_MODEL_NAME}")]
    TooLong {
        /// Length.
        length: usize,
    },
}

/// Names of a model list, each with the base model that it adapts; `None` for a base model.
pub type ModelNames = BTreeMap<Box<str>, Option<Box<str>>>;

#[derive(Deserialize)]
struct NameList {
    data: Vec<NamedModel>,
}

#[derive(Deserialize)]
struct NamedModel {
    id: Box<str>,
    #[serde(default)]
    parent: Option<Value>,
}

/// Reads the names of a model list: vLLM and SGLang report the base model of a LoRA adapter as its `parent`.
///
/// # Errors
/// [`ModelNamesError`] if it is not a list, or too large.
pub fn model_names(list: &[u8]) -> Result<ModelNames, ModelNamesError> {
    let list: NameList = serde_json::from_slice(list).map_err(ModelNamesError::Invalid)?;
    if list.data.len() > MOST_MODEL_NAMES {
        let count = list.data.len();
        return Err(ModelNamesError::TooMany { count });
    }
    let mut names = ModelNames::new();
    for model in list.data {
        // A parent that is not text is ignored.
        let parent = match model.parent {
            Some(Value::String(parent)) if !parent.is_empty() && *parent != *model.id => Some(parent),
            _ => None,
        };
        let longest = parent.as_deref().unwrap_or_default().len().max(model.id.len());
        if longest > LONGEST_MODEL_NAME {
            return Err(ModelNamesError::TooLong { length: longest });
        }
        names.insert(model.id, parent.map(Into::into));
    }
    Ok(names)
}

/// Returns `true` if an error body means that the worker does not serve this model; `status` is that of the answer.
///
/// vLLM answers 404 `{"error":{"type":"NotFoundError","param":"model",...}}`, older versions and SGLang the same
/// members at the top level; OpenAI's own code is `model_not_found`. SGLang answers 400 if a LoRA adapter is not
/// loaded. Other missing objects, such as a stored response, have the same types. The message must therefore contain
/// the model, or `model` must be the field at fault.
#[must_use]
pub fn is_model_not_found(status: u16, body: &[u8], model: &str) -> bool {
    if !matches!(status, 400 | 404) || model.is_empty() {
        return false;
    }
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else {
        return false;
    };
    let error = match body.get("error") {
        Some(Value::Object(error)) => error,
        _ => &body,
    };
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let message = text("message");
    let names_model = message.contains(model);
    if status == 400 {
        // For a request with `base:adapter` the message contains only the adapter.
        let adapter = model.split_once(':').map_or(model, |(_, adapter)| adapter.trim());
        return message.contains("LoRA adapters are not loaded") && message.contains(adapter);
    }
    let is_of_model = text("param") == "model" || text("code") == "model_not_found";
    let is_missing = text("type") == "NotFoundError" || text("code") == "model_not_found" || {
        let code = error.get("code");
        code.is_some_and(|code| code.as_u64() == Some(404) || code.as_str() == Some("404"))
    };
    is_of_model || is_missing && names_model
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_listed_with_their_base_model() {
        let list = br#"{"object":"list","data":[{"id":"tiny","parent":null,"max_model_len":512},
            {"id":"sql","root":"/adapters/sql","parent":"tiny"},{"id":"old","object":"model"},{"id":"self","parent":"self"}]}"#;
        let names = model_names(list).unwrap();
        let names: Vec<_> = names
            .iter()
            .map(|(id, parent)| (&**id, parent.as_deref()))
            .collect();
        let expected = [
            ("old", None),
            ("self", None),
            ("sql", Some("tiny")),
            ("tiny", None),
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_list_too_large_to_keep_is_refused_whole() {
        let list = |names: &[String]| {
            let data: Vec<Value> = names.iter().map(|id| serde_json::json!({ "id": id })).collect();
            serde_json::json!({ "data": data }).to_string().into_bytes()
        };
        let many: Vec<String> = (0..=MOST_MODEL_NAMES).map(|number| number.to_string()).collect();
        assert!(model_names(&list(&many[1..])).is_ok());
        assert!(matches!(
            model_names(&list(&many)),
            Err(ModelNamesError::TooMany { .. })
        ));
        let long = "x".repeat(LONGEST_MODEL_NAME + 1);
        assert!(matches!(
            model_names(&list(&[long])),
            Err(ModelNamesError::TooLong { .. })
        ));
        assert!(matches!(model_names(b"[]"), Err(ModelNamesError::Invalid(_))));
    }

    #[track_caller]
    fn check(status: u16, body: &str, expected: bool) {
        assert_eq!(
            is_model_not_found(status, body.as_bytes(), "sql"),
            expected,
            "{body}"
        );
    }

    #[test]
    fn a_model_that_is_not_served_is_distinguished_from_other_errors() {
        let vllm = r#"{"error":{"message":"The model `sql` does not exist. Valid aliases: tiny.","type":"NotFoundError","param":"model","code":404}}"#;
        check(404, vllm, true);
        check(400, vllm, false);
        check(500, vllm, false);
        let flat = r#"{"object":"error","message":"The model `sql` does not exist.","type":"NotFoundError","param":null,"code":404}"#;
        check(404, flat, true);
        check(
            404,
            r#"{"error":{"message":"no","code":"model_not_found"}}"#,
            true,
        );
        let adapter = r#"{"object":"error","message":"The following requested LoRA adapters are not loaded: {'sql'}\nLoaded adapters: dict_keys([]).","type":"BadRequestError","code":400}"#;
        check(400, adapter, true);
        check(400, r#"{"message":"LoRA adapters are not loaded: other"}"#, false);
        check(
            404,
            r#"{"error":{"message":"Response with id 'r' not found.","type":"NotFoundError","param":"response_id","code":404}}"#,
            false,
        );
        check(404, r#"{"detail":"Not Found"}"#, false);
        check(404, "sql not found", false);
        assert!(!is_model_not_found(404, vllm.as_bytes(), ""));
        assert!(is_model_not_found(400, adapter.as_bytes(), "tiny:sql"));
    }
}
