//! One `/v1/models` list out of many.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use thiserror::Error;

/// A worker's model list could not be read.
#[derive(Debug, Error)]
#[error("read a model list")]
pub struct ModelsError {
    #[source]
    source: serde_json::Error,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Model<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

/// As OpenAI's clients need it.
#[derive(Serialize)]
struct Described<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

impl<'a> Described<'a> {
    fn new(id: &'a str) -> Self {
        Self {
            id,
            object: "model",
            created: 0,
            owned_by: "conductor",
        }
    }
}

#[derive(Serialize)]
struct Merged<'a> {
    object: &'static str,
    data: Vec<&'a RawValue>,
}

/// Merges model lists: each id once, as the first list that has it describes it, every field untouched.
///
/// # Errors
/// [`ModelsError`] for the first list that is not one. Callers that would rather go on without it ask
/// list by list.
pub fn merge_models<'a>(lists: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<u8>, ModelsError> {
    let mut seen = HashSet::new();
    let mut data = Vec::new();
    for list in lists {
        let list: List<'a> = serde_json::from_slice(list).map_err(|source| ModelsError { source })?;
        for raw in list.data {
            let model: Model<'a> =
                serde_json::from_str(raw.get()).map_err(|source| ModelsError { source })?;
            if seen.insert(model.id) {
                data.push(raw);
            }
        }
    }
    let merged = Merged { object: "list", data };
    serde_json::to_vec(&merged).map_err(|source| ModelsError { source })
}

/// A list of models of which nothing but the name is known.
#[must_use]
pub fn list_models<'a>(ids: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let described: Vec<Described<'a>> = ids.into_iter().map(Described::new).collect();
    let list = json!({ "object": "list", "data": described });
    list.to_string().into_bytes()
}

/// A list without the models that are not to be kept, every field of the others untouched.
///
/// # Errors
/// [`ModelsError`] for what is not a list.
pub fn select_models(list: &[u8], keep: impl Fn(&str) -> bool) -> Result<Vec<u8>, ModelsError> {
    let list: List<'_> = serde_json::from_slice(list).map_err(|source| ModelsError { source })?;
    let mut data = Vec::with_capacity(list.data.len());
    for raw in list.data {
        let model: Model<'_> = serde_json::from_str(raw.get()).map_err(|source| ModelsError { source })?;
        if keep(&model.id) {
            data.push(raw);
        }
    }
    let selected = Merged { object: "list", data };
    serde_json::to_vec(&selected).map_err(|source| ModelsError { source })
}

/// The model of that id in a list, as the list describes it: its JSON text, untouched.
///
/// # Errors
/// [`ModelsError`] for what is not a list.
pub fn find_model<'a>(list: &'a [u8], id: &str) -> Result<Option<&'a str>, ModelsError> {
    let list: List<'a> = serde_json::from_slice(list).map_err(|source| ModelsError { source })?;
    for raw in list.data {
        let model: Model<'a> = serde_json::from_str(raw.get()).map_err(|source| ModelsError { source })?;
        if model.id == id {
            return Ok(Some(raw.get()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lists: &[&str], expected: &str) {
        let merged = merge_models(lists.iter().map(|list| list.as_bytes())).unwrap();
        assert_eq!(String::from_utf8(merged).unwrap(), expected);
    }

    #[test]
    fn each_model_is_listed_once_as_first_described_with_its_fields() {
        check(&[], r#"{"object":"list","data":[]}"#);
        check(
            &[
                r#"{"object":"list","data":[{"id":"a","x":1.50},{"id":"b"}]}"#,
                r#"{"data":[{"id":"b","y":2},{"id":"c","z":{"k":[1]}}],"extra":0}"#,
            ],
            r#"{"object":"list","data":[{"id":"a","x":1.50},{"id":"b"},{"id":"c","z":{"k":[1]}}]}"#,
        );
    }

    #[test]
    fn what_is_declared_only_is_listed_after_what_is_known_better() {
        let declared = list_models(["a", "b\"c"]);
        let known = br#"{"data":[{"id":"a","x":1}]}"#;
        let merged = merge_models([&known[..], &declared]).unwrap();
        let merged = String::from_utf8(merged).unwrap();
        assert!(merged.contains(r#"[{"id":"a","x":1},{"#), "{merged}");
        assert_eq!(
            find_model(merged.as_bytes(), "b\"c").unwrap().map(str::is_empty),
            Some(false)
        );
    }

    #[test]
    fn only_what_is_kept_is_selected() {
        let list = br#"{"data":[{"id":"a"},{"id":"b","x":1.50}]}"#;
        let selected = select_models(list, |id| id == "b").unwrap();
        assert_eq!(selected, br#"{"object":"list","data":[{"id":"b","x":1.50}]}"#);
        assert!(select_models(b"[]", |_| true).is_err());
    }

    #[test]
    fn a_model_is_found_by_its_id_with_its_fields() {
        let list = br#"{"data":[{"id":"a"},{"id":"o\u002fb","x":1.50}]}"#;
        assert_eq!(
            find_model(list, "o/b").unwrap(),
            Some(r#"{"id":"o\u002fb","x":1.50}"#)
        );
        assert_eq!(find_model(list, "c").unwrap(), None);
        assert!(find_model(b"[]", "a").is_err());
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        for list in ["", "[]", "{}", r#"{"data":[{"name":"x"}]}"#] {
            assert!(merge_models([list.as_bytes()]).is_err(), "{list}");
        }
    }
}
