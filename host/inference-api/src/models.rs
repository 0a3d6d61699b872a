//! Merging of `/v1/models` lists.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use thiserror::Error;

/// A worker's model list cannot be read.
#[derive(Debug, Error)]
#[error("read a model list")]
pub struct ModelsError {
    #[source]
    source: serde_json::Error,
}

#[derive(Deserialize)]
struct ModelList<'a> {
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct ListedModel<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

/// A model in the form that OpenAI's clients need.
#[derive(Serialize)]
struct DescribedModel<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

impl<'a> DescribedModel<'a> {
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
struct MergedList<'a> {
    object: &'static str,
    data: Vec<&'a RawValue>,
}

/// Merges model lists: each id once, as described by the first list that has it, with every field unchanged.
///
/// # Errors
/// [`ModelsError`] for the first invalid list. To skip invalid lists, call it once per list.
pub fn merge_models<'a>(lists: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<u8>, ModelsError> {
    let mut seen = HashSet::new();
    let mut data = Vec::new();
    for list in lists {
        let list: ModelList<'a> = serde_json::from_slice(list).map_err(|source| ModelsError { source })?;
        for raw in list.data {
            let model: ListedModel<'a> =
                serde_json::from_str(raw.get()).map_err(|source| ModelsError { source })?;
            if seen.insert(model.id) {
                data.push(raw);
            }
        }
    }
    let merged = MergedList { object: "list", data };
    serde_json::to_vec(&merged).map_err(|source| ModelsError { source })
}

/// Returns a list of models of which only the names are known.
#[must_use]
pub fn list_models<'a>(ids: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let described: Vec<DescribedModel<'a>> = ids.into_iter().map(DescribedModel::new).collect();
    let list = json!({ "object": "list", "data": described });
    list.to_string().into_bytes()
}

/// Returns a list without the models that `keep` rejects, with every other field unchanged.
///
/// # Errors
/// [`ModelsError`] for an invalid list.
pub fn select_models(list: &[u8], keep: impl Fn(&str) -> bool) -> Result<Vec<u8>, ModelsError> {
    let list: ModelList<'_> = serde_json::from_slice(list).map_err(|source| ModelsError { source })?;
    let mut data = Vec::with_capacity(list.data.len());
    for raw in list.data {
        let model: ListedModel<'_> =
            serde_json::from_str(raw.get()).map_err(|source| ModelsError { source })?;
        if keep(&model.id) {
            data.push(raw);
        }
    }
    let selected = MergedList { object: "list", data };
    serde_json::to_vec(&selected).map_err(|source| ModelsError { source })
}

/// Returns the JSON text of the model with that id in a list, unchanged.
///
/// # Errors
/// [`ModelsError`] for an invalid list.
pub fn find_model<'a>(list: &'a [u8], id: &str) -> Result<Option<&'a str>, ModelsError> {
    let list: ModelList<'a> = serde_json::from_slice(list).map_err(|source| ModelsError { source })?;
    for raw in list.data {
        let model: ListedModel<'a> =
            serde_json::from_str(raw.get()).map_err(|source| ModelsError { source })?;
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
    fn declared_models_are_listed_once_after_reported_ones() {
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
    fn a_malformed_model_list_is_an_error() {
        for list in ["", "[]", "{}", r#"{"data":[{"name":"x"}]}"#] {
            assert!(merge_models([list.as_bytes()]).is_err(), "{list}");
        }
    }
}
