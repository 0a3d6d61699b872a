//! Target groups: Prometheus' JSON of `http_sd` and `file_sd`.
//!
//! `[{"targets": ["10.0.0.7:8000"], "labels": {"rack": "b"}}]`

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::attributes::Attributes;
use crate::decoded::{AnswerError, Decoded};
use crate::worker::WorkerDefaults;

/// Name of the format in errors.
const FORMAT: &str = "a list of target groups";

/// Group of targets with the same labels.
#[derive(Debug, Deserialize)]
struct TargetGroup {
    targets: Vec<Value>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

/// Decodes the answer of an `http_sd` server, or a `file_sd` file.
///
/// # Errors
/// [`AnswerError`] if no part of it can be used.
pub fn target_groups(answer: &[u8], defaults: &WorkerDefaults) -> Result<Decoded, AnswerError> {
    let groups: Vec<Value> = serde_json::from_slice(answer).map_err(|error| AnswerError::Shape {
        expected: FORMAT,
        why: error.to_string(),
    })?;
    let mut decoded = Decoded::default();
    for (number, group) in (1..).zip(groups) {
        let name = format!("group {number}");
        // A struct is also read from an array of its fields.
        if !group.is_object() {
            decoded.fault(&name, "it is not an object");
            continue;
        }
        match TargetGroup::deserialize(group) {
            Ok(group) => add_group(&mut decoded, &name, group, defaults),
            Err(error) => decoded.fault(&name, error.to_string()),
        }
    }
    decoded.finish(defaults)
}

fn add_group(decoded: &mut Decoded, name: &str, group: TargetGroup, defaults: &WorkerDefaults) {
    let labels = group.labels.unwrap_or_default();
    let labels = labels.iter().map(|(name, value)| (&**name, &**value));
    let attributes = match Attributes::read(labels, defaults) {
        Ok(attributes) => attributes,
        Err(why) => return decoded.fault(name, why),
    };
    for target in group.targets {
        match target.as_str() {
            Some(target) => decoded.entry(target, attributes.worker(target)),
            None => decoded.fault(name, format!("the target {target} is not a string")),
        }
    }
}

#[cfg(test)]
mod tests {
    use routing::Role;

    use super::*;
    use crate::attributes::tests::defaults;

    fn decode(text: &str) -> Result<Decoded, AnswerError> {
        target_groups(text.as_bytes(), &defaults())
    }

    #[test]
    fn groups_become_workers_with_the_labels_of_their_group() {
        let decoded = decode(
            r#"[{"targets": ["b:2", "a:1"], "labels": {"rack": "7", "conductor_role": "decode"}},
                {"targets": ["c:3"]}, {"targets": [], "labels": null}]"#,
        )
        .unwrap();
        let urls: Vec<_> = decoded.workers.iter().map(|worker| &*worker.url).collect();
        assert_eq!(urls, ["http://a:1", "http://b:2", "http://c:3"]);
        assert_eq!(decoded.workers[0].role, Role::Decode);
        assert_eq!(decoded.workers[0].labels["rack"], "7");
        assert!(decoded.workers[2].labels.is_empty());
        assert_eq!(decoded.fault_count, 0);
    }

    #[test]
    fn bad_entries_are_reported_each_and_good_ones_are_used() {
        let decoded = decode(
            r#"[{"targets": ["a:1", "b:x", "https://10.0.0.300:1", 7]}, {"labels": {}}, [],
                {"targets": ["d:1"], "labels": {"x": 1}},
                {"targets": ["e:1"], "labels": {"conductor_ranks": "no"}}]"#,
        )
        .unwrap();
        assert_eq!(decoded.workers.len(), 1);
        let entries: Vec<_> = decoded.faults.iter().map(|fault| &*fault.entry).collect();
        assert_eq!(
            entries,
            [
                "b:x",
                "https://10.0.0.300:1",
                "group 1",
                "group 2",
                "group 3",
                "group 4",
                "group 5"
            ]
        );
    }

    #[test]
    fn an_answer_of_another_shape_is_an_error() {
        for text in ["", "{}", "[", "<html>", r#""a:1""#, "null"] {
            assert!(matches!(decode(text), Err(AnswerError::Shape { .. })), "{text}");
        }
        assert!(matches!(
            decode(r#"[{"targets": ["x y:1"]}]"#),
            Err(AnswerError::NoneUsable { .. })
        ));
        assert_eq!(decode("[]"), Ok(Decoded::default()));
    }
}
