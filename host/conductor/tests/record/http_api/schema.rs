//! Schemas of JSON: inferred from examples, merged, and compared with answers.

use serde_json::{Map, Value, json};

/// Returns the schema of a value. Each type may be `null`, which is how the pages show unknown values.
pub(super) fn infer(value: &Value) -> Value {
    let kind = match value {
        Value::Null => return json!({}),
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(items) => {
            let items = items
                .iter()
                .map(infer)
                .fold(json!({}), |all, one| merge(&all, &one));
            return json!({ "type": ["array", "null"], "items": items });
        }
        Value::Object(members) => {
            let properties = members.iter().map(|(name, value)| (name.clone(), infer(value)));
            let properties: Map<String, Value> = properties.collect();
            let required: Vec<&String> = members.keys().collect();
            return json!({ "type": ["object", "null"], "properties": properties, "required": required });
        }
    };
    json!({ "type": [kind, "null"] })
}

/// Returns the schema that both schemas' values have.
pub(super) fn merge(one: &Value, other: &Value) -> Value {
    if one == &json!({}) {
        return other.clone();
    }
    if other == &json!({}) || one == other {
        return one.clone();
    }
    if one["type"] != other["type"] {
        return json!({ "description": "One of several types" });
    }
    match (one["properties"].as_object(), other["properties"].as_object()) {
        (Some(first), Some(second)) => {
            let mut properties = first.clone();
            for (name, schema) in second {
                let merged = first
                    .get(name)
                    .map_or_else(|| schema.clone(), |known| merge(known, schema));
                properties.insert(name.clone(), merged);
            }
            let in_both = |name: &&Value| {
                other["required"]
                    .as_array()
                    .is_some_and(|names| names.contains(name))
            };
            let required = one["required"].as_array().into_iter().flatten().filter(in_both);
            let required: Vec<&Value> = required.collect();
            json!({ "type": one["type"], "properties": properties, "required": required })
        }
        _ => json!({ "type": one["type"], "items": merge(&one["items"], &other["items"]) }),
    }
}

/// Appends what differs between a value and its schema. A member without a property is a difference.
pub(super) fn differences(schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let Some(types) = schema["type"].as_array() else {
        return;
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !types.iter().any(|known| known == kind) {
        found.push(format!("{place} is of the type {kind}"));
        return;
    }
    match value {
        Value::Array(items) => {
            for item in items {
                differences(&schema["items"], item, &format!("{place}[]"), found);
            }
        }
        // A schema without properties takes any.
        Value::Object(members) if schema["properties"].is_object() => {
            for (name, value) in members {
                match schema["properties"].get(name) {
                    Some(known) => differences(known, value, &format!("{place}.{name}"), found),
                    None => found.push(format!("{place}.{name} is not in the document")),
                }
            }
            let required = schema["required"].as_array().into_iter().flatten();
            let absent = required
                .filter_map(Value::as_str)
                .filter(|name| !members.contains_key(*name));
            found.extend(absent.map(|name| format!("{place}.{name} is absent")));
        }
        _ => {}
    }
}

#[test]
fn a_changed_type_an_unknown_and_an_absent_member_are_differences() {
    let schema = infer(&json!({ "rows": [{ "a": 1, "b": "x" }, { "a": 2 }], "at": null }));
    let faults = |value: Value| {
        let mut found = Vec::new();
        differences(&schema, &value, "$", &mut found);
        found
    };
    assert!(faults(json!({ "rows": [{ "a": null }], "at": 7 })).is_empty());
    assert_eq!(
        faults(json!({ "rows": [{ "b": "x" }], "at": 7 })),
        ["$.rows[].a is absent"]
    );
    assert_eq!(
        faults(json!({ "rows": [{ "a": true }], "at": 7 })),
        ["$.rows[].a is of the type boolean"]
    );
    assert_eq!(
        faults(json!({ "rows": [], "at": 7, "new": 1 })),
        ["$.new is not in the document"]
    );
}
