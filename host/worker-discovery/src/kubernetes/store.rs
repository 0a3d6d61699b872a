//! Store of the objects of a list, kept up to date by its watch.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::object::{AddressFamily, KubeView, KubeWorkers, ObjectMeta};
use crate::decoded::{AnswerError, Decoded};

/// Most objects of a list: a slice has up to 1,000 endpoints, a pod is one worker.
const MOST_OBJECTS: usize = 20_000;
/// Status of an expired resource version.
const GONE: u16 = 410;

/// Objects of a list by name, each with its workers.
#[derive(Debug)]
pub struct KubeStore {
    view: KubeView,
    objects: BTreeMap<String, KubeWorkers>,
    /// Version that the next watch starts from; `None` before a list, and after it expired.
    version: Option<String>,
}

/// Pages of a list that is being read.
#[derive(Debug, Default)]
pub struct ListPages {
    objects: BTreeMap<String, KubeWorkers>,
    version: String,
}

/// Effect of a line of the watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchChange {
    /// An object came, changed or went.
    Object,
    /// A newer version without a change.
    Bookmark,
    /// The version expired: list again.
    Expired,
}

/// Error of a page or a line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KubeStoreError {
    /// The text is not JSON of the expected shape.
    #[error("the API server's answer is not {expected}: {why}")]
    Shape {
        /// Name of the shape.
        expected: &'static str,
        /// Error of the parser.
        why: String,
    },
    /// The list has too many objects.
    #[error("the list has more than {MOST_OBJECTS} objects")]
    TooMany,
    /// The API server ended the watch with an error.
    #[error("the API server ended the watch: {message} (code {code})")]
    Watch {
        /// Its code.
        code: u16,
        /// Its message.
        message: String,
    },
}

/// Page of a list.
#[derive(Debug, Deserialize)]
struct ObjectList {
    metadata: ListMeta,
    #[serde(default)]
    items: Option<Vec<Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    r#continue: Option<String>,
}

/// Line of a watch.
#[derive(Debug, Deserialize)]
struct WatchLine {
    r#type: String,
    object: Value,
}

/// The part of an object that every one has.
#[derive(Debug, Deserialize)]
struct AnyObject {
    metadata: ObjectMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusObject {
    code: u16,
    message: String,
}

impl KubeStore {
    /// Returns a store without a list.
    #[must_use]
    pub fn new(view: KubeView) -> Self {
        Self {
            view,
            objects: BTreeMap::new(),
            version: None,
        }
    }

    /// Returns the version that a watch starts from; `None` if the list must be read first.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Forgets the version, so that the list is read again. The objects stay until then.
    pub fn expire(&mut self) {
        self.version = None;
    }

    /// Adds a page to a list. Returns the token of the next page.
    ///
    /// # Errors
    /// [`KubeStoreError`].
    pub fn read_page(&self, pages: &mut ListPages, page: &[u8]) -> Result<Option<String>, KubeStoreError> {
        let list: ObjectList = parse(page, "a list of objects")?;
        for object in list.items.into_iter().flatten() {
            let name = name_and_version(&object)?.0;
            pages.objects.insert(name, self.view.workers(object));
        }
        if pages.objects.len() > MOST_OBJECTS {
            return Err(KubeStoreError::TooMany);
        }
        pages.version = list.metadata.resource_version;
        Ok(list.metadata.r#continue.filter(|token| !token.is_empty()))
    }

    /// Replaces the objects by those of a complete list.
    pub fn replace(&mut self, pages: ListPages) {
        self.objects = pages.objects;
        self.version = Some(pages.version);
    }

    /// Applies a line of the watch.
    ///
    /// # Errors
    /// [`KubeStoreError`]. The version stays, so that the next watch repeats the line.
    pub fn apply(&mut self, line: &[u8]) -> Result<WatchChange, KubeStoreError> {
        let WatchLine { r#type, object } = parse(line, "a watch event")?;
        match &*r#type {
            "ADDED" | "MODIFIED" => {
                let (name, version) = name_and_version(&object)?;
                self.objects.insert(name, self.view.workers(object));
                self.version = Some(version);
                match self.objects.len() > MOST_OBJECTS {
                    true => Err(KubeStoreError::TooMany),
                    false => Ok(WatchChange::Object),
                }
            }
            "DELETED" => {
                let (name, version) = name_and_version(&object)?;
                self.objects.remove(&name);
                self.version = Some(version);
                Ok(WatchChange::Object)
            }
            "BOOKMARK" => {
                self.version = Some(name_and_version(&object)?.1);
                Ok(WatchChange::Bookmark)
            }
            "ERROR" => {
                let status = StatusObject::deserialize(object).unwrap_or_default();
                self.version = None;
                match status.code {
                    GONE => Ok(WatchChange::Expired),
                    code => Err(KubeStoreError::Watch {
                        code,
                        message: status.message,
                    }),
                }
            }
            other => Err(KubeStoreError::Shape {
                expected: "a watch event",
                why: format!("its type is `{}`", other.chars().take(40).collect::<String>()),
            }),
        }
    }

    /// Returns the workers of all objects. Slices of IPv6 addresses count only without one of IPv4 addresses: a pod
    /// of a dual-stack Service has both, and is one worker.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn answer(&self) -> Result<Decoded, AnswerError> {
        let mut all = Decoded::default();
        let objects = self.objects.values();
        let has_v4 = objects.clone().any(|part| part.family == AddressFamily::V4);
        let counted = objects.filter(|part| !(has_v4 && part.family == AddressFamily::V6));
        counted.for_each(|part| all.extend(&part.workers));
        all.finish(&self.view.defaults)
    }
}

fn parse<'t, T: Deserialize<'t>>(text: &'t [u8], expected: &'static str) -> Result<T, KubeStoreError> {
    serde_json::from_slice(text).map_err(|error| KubeStoreError::Shape {
        expected,
        why: error.to_string(),
    })
}

fn name_and_version(object: &Value) -> Result<(String, String), KubeStoreError> {
    let any = AnyObject::deserialize(object).map_err(|error| KubeStoreError::Shape {
        expected: "an object",
        why: error.to_string(),
    })?;
    Ok((any.metadata.name, any.metadata.resource_version))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::object::tests::view;
    use super::*;

    fn pod(name: &str, version: u32) -> Value {
        json!({
            "metadata": { "name": name, "resourceVersion": version.to_string() },
            "status": { "podIP": "10.0.0.1", "conditions": [{ "type": "Ready", "status": "True" }] },
        })
    }

    fn slice(name: &str, address: &str, version: u32) -> Value {
        json!({
            "metadata": { "name": name, "resourceVersion": version.to_string() },
            "endpoints": [{ "addresses": [address] }], "ports": [{ "port": 8000 }],
        })
    }

    fn list(items: &[Value], version: &str, next: Option<&str>) -> Vec<u8> {
        let page = json!({ "metadata": { "resourceVersion": version, "continue": next }, "items": items });
        page.to_string().into_bytes()
    }

    fn event(kind: &str, object: &Value) -> Vec<u8> {
        json!({ "type": kind, "object": object }).to_string().into_bytes()
    }

    fn listed() -> KubeStore {
        let mut store = KubeStore::new(view(true, None));
        let mut pages = ListPages::default();
        let first = list(&[slice("a", "10.0.0.1", 3)], "7", Some("next"));
        assert_eq!(store.read_page(&mut pages, &first), Ok(Some("next".into())));
        let last = list(&[slice("b", "10.0.0.2", 4)], "7", Some(""));
        assert_eq!(store.read_page(&mut pages, &last), Ok(None));
        store.replace(pages);
        store
    }

    fn hosts(store: &KubeStore) -> Vec<String> {
        let workers = store.answer().unwrap().workers.into_iter();
        workers.map(|worker| worker.url).collect()
    }

    #[test]
    fn a_list_of_several_pages_is_one_answer() {
        let store = listed();
        assert_eq!(store.version(), Some("7"));
        assert_eq!(hosts(&store), ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]);
    }

    #[test]
    fn a_watch_adds_changes_and_removes_objects_and_a_bookmark_moves_the_version() {
        let mut store = listed();
        let moved = event("MODIFIED", &slice("a", "10.0.0.9", 8));
        assert_eq!(store.apply(&moved), Ok(WatchChange::Object));
        assert_eq!(store.apply(&moved), Ok(WatchChange::Object), "a repeated event");
        let removed = event("DELETED", &slice("b", "10.0.0.2", 9));
        assert_eq!(store.apply(&removed), Ok(WatchChange::Object));
        assert_eq!(hosts(&store), ["http://10.0.0.9:8000"]);
        let bookmark = event("BOOKMARK", &json!({ "metadata": { "resourceVersion": "12" } }));
        assert_eq!(store.apply(&bookmark), Ok(WatchChange::Bookmark));
        assert_eq!(store.version(), Some("12"));
        let again = event("ADDED", &slice("c", "10.0.0.3", 13));
        assert_eq!(store.apply(&again), Ok(WatchChange::Object));
        assert_eq!(hosts(&store), ["http://10.0.0.3:8000", "http://10.0.0.9:8000"]);
    }

    #[test]
    fn an_expired_version_keeps_the_objects_until_the_next_list() {
        let mut store = listed();
        let gone = event(
            "ERROR",
            &json!({ "kind": "Status", "code": 410, "message": "too old" }),
        );
        assert_eq!(store.apply(&gone), Ok(WatchChange::Expired));
        assert_eq!((store.version(), hosts(&store).len()), (None, 2));
        let other = event("ERROR", &json!({ "code": 500, "message": "etcd" }));
        assert!(matches!(
            store.apply(&other),
            Err(KubeStoreError::Watch { code: 500, .. })
        ));
    }

    #[test]
    fn a_bad_line_changes_nothing() {
        let mut store = listed();
        for line in [
            "{",
            "{}",
            "[]",
            r#"{"type": "ADDED", "object": {}}"#,
            r#"{"type": "X", "object": {}}"#,
        ] {
            assert!(store.apply(line.as_bytes()).is_err(), "{line}");
            assert_eq!((store.version(), hosts(&store).len()), (Some("7"), 2));
        }
    }

    #[test]
    fn a_pod_with_addresses_of_both_families_is_one_worker() {
        let of_family = |name: &str, family: &str, address: &str, version| {
            let mut slice = slice(name, address, version);
            slice["addressType"] = family.into();
            slice
        };
        let mut store = KubeStore::new(view(true, None));
        let v6 = of_family("v6", "IPv6", "fd00::1", 1);
        store.apply(&event("ADDED", &v6)).unwrap();
        assert_eq!(
            hosts(&store),
            ["http://[fd00::1]:8000"],
            "it has no other address"
        );
        let v4 = of_family("v4", "IPv4", "10.0.0.1", 2);
        store.apply(&event("ADDED", &v4)).unwrap();
        assert_eq!(hosts(&store), ["http://10.0.0.1:8000"]);
        let mut unready = v4.clone();
        unready["endpoints"][0]["conditions"] = json!({ "ready": false });
        store.apply(&event("MODIFIED", &unready)).unwrap();
        assert_eq!(hosts(&store), [""; 0], "the slices change one after the other");
        let mut empty = v4;
        empty["endpoints"] = json!([]);
        store.apply(&event("MODIFIED", &empty)).unwrap();
        assert_eq!(
            hosts(&store),
            ["http://[fd00::1]:8000"],
            "the Service is of IPv6 only"
        );
    }

    #[test]
    fn a_pod_is_a_worker_of_the_store() {
        let mut store = KubeStore::new(view(false, Some("8000")));
        store.apply(&event("ADDED", &pod("a", 1))).unwrap();
        assert_eq!(hosts(&store), ["http://10.0.0.1:8000"]);
    }
}
