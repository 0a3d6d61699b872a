//! Nesting depth of JSON, checked before parsing: skipped values have no limit of their own.

use memchr::{memchr2, memchr2_iter};

/// Returns `true` if arrays and objects of `json` are nested deeper than `limit`. JSON with fewer of them is
/// recognised at once. For invalid JSON the result is undefined.
#[must_use]
pub fn is_deeper_than(json: &[u8], limit: usize) -> bool {
    let openings = memchr2_iter(b'[', b'{', json).take(limit.saturating_add(1));
    openings.count() > limit && depth_exceeds(json, limit)
}

fn depth_exceeds(json: &[u8], limit: usize) -> bool {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => at = end_of_string(json, at),
            b'[' | b'{' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Returns the position after the string that begins at `at`, after its first quote.
fn end_of_string(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = json.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        if json[at - 1] == b'"' {
            return at;
        }
        // An escaped character never ends the string.
        at += 1;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[track_caller]
    fn check(json: &str, depth: usize) {
        assert!(!is_deeper_than(json.as_bytes(), depth), "{json}");
        assert!(depth == 0 || is_deeper_than(json.as_bytes(), depth - 1), "{json}");
    }

    #[test]
    fn only_brackets_outside_strings_nest() {
        check("1", 0);
        check("[]", 1);
        check("[[],[],[]]", 2);
        check(r#"{"a":{"b":[1]}}"#, 3);
        check(r#"{"a":"[[[[[[{{{{"}"#, 1);
        check(r#"{"a":"\"[[\\","b":[]}"#, 2);
    }

    #[test]
    fn unterminated_json_is_measured_to_its_end() {
        let deep = "[".repeat(1_000_000);
        assert!(is_deeper_than(deep.as_bytes(), 128));
        assert!(!is_deeper_than(br#"["[[[[\"#, 1));
        assert!(!is_deeper_than(b"]]]]", 0));
    }

    fn depth(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
            Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
            _ => 0,
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i32>().prop_map(Value::from),
            "[\\[{}\\\\\"\\]a]{0,6}".prop_map(Value::from)
        ];
        leaf.prop_recursive(6, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[{\"\\\\]{0,3}", inner), 0..4)
                    .prop_map(|fields| fields.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_is_the_depth_of_the_tree(value in values()) {
            check(&value.to_string(), depth(&value));
        }
    }
}
