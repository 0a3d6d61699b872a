//! Tests of the object reader, against `serde_json`.

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

/// Returns the object as it was read, and its depth.
fn rebuilt(json: &[u8]) -> Option<(Map<String, Value>, usize)> {
    let mut members = Map::new();
    let depth = read(
        json,
        b"a",
        |Member {
             name,
             value,
             elements,
         }| {
            let name = std::str::from_utf8(name).ok()?;
            let read: Value = serde_json::from_slice(value).ok()?;
            if name == "a" {
                let listed = elements
                    .iter()
                    .map(|at| serde_json::from_slice(&value[at.clone()]));
                let listed: Vec<Value> = listed.collect::<Result<_, _>>().ok()?;
                assert_eq!(read.as_array().unwrap_or(&Vec::new()), &listed);
            }
            members.insert(name.to_owned(), read);
            Some(())
        },
    )?;
    Some((members, depth))
}

#[track_caller]
fn check(json: &str, depth: Option<usize>) {
    for list in [&b""[..], b"a", b"b"] {
        assert_eq!(read(json.as_bytes(), list, |_| Some(())), depth, "{json}");
    }
}

#[test]
fn takes_objects_and_nothing_else() {
    check("{}", Some(1));
    check(" {\t}\r\n", Some(1));
    check(r#"{"a":1,"b":[{"c":[]},{}]}"#, Some(4));
    check(r#"{"a":"]}\"\\\u00e9"}"#, Some(1));
    check(r#"{"a":-0.5e+3}"#, Some(1));
    check(r#"{"a":[1,23, 4,0 ,5.5,-6,7, 8]}"#, Some(2));
    check(r#"{"a":[1,23, 4,0,10,200,3000]}"#, Some(2));
    check(r#"{"a":[[1],[2,3],[0,5.5,7,8],4,5]}"#, Some(3));
    for bad in [
        "",
        "{",
        "[]",
        "3",
        "{}x",
        "{,}",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{"a":01}"#,
        r#"{"a":-}"#,
        r#"{"a":1.}"#,
        r#"{"a":1e}"#,
        r#"{"a":tru}"#,
        r#"{"a":[1}}"#,
        r#"{"a":{]}"#,
        r#"{"a":[,]}"#,
        "{\"a\":[1,23,,4]}",
        "{\"a\":[1,23,04]}",
        "{\"a\":[1, 04]}",
        "{\"a\":[1,2 3]}",
        "{\"a\":[1,2,]}",
        "{\"a\":[1,2, ]}",
        "{\"a\":[1,  2,,3]}",
        "{\"a\":[1, ,3]}",
        "{\"a\":[1,2",
        "{\"a\":[1,23}",
        "{\"a\":[1,2",
        r#"{"a":"\x"}"#,
        r#"{"a":"\u12g4"}"#,
        "{\"a\":\"\n\"}",
        r#"{"a":"b}"#,
        r#"{"a":"\"#,
        r#"{"a":"\u12"#,
        r#"{a:1}"#,
    ] {
        check(bad, None);
    }
}

#[test]
fn leaves_deeper_ones_and_escaped_names_to_others() {
    let nested = |depth: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    check(&nested(128), Some(129));
    check(&nested(129), None);
    check(r#"{"\u0061":1}"#, None);
}

#[test]
fn a_list_has_the_elements_between_its_commas() {
    let found = |json: &str| {
        let elements = list_elements(json)?;
        Some(
            elements
                .into_iter()
                .map(|at| json[at].to_owned())
                .collect::<Vec<_>>(),
        )
    };
    let expected = |elements: &[&str]| Some(elements.iter().map(|text| (*text).to_owned()).collect());
    assert_eq!(found("[]"), expected(&[]));
    assert_eq!(
        found(r#"[ {"a":[1,2]} ,"x,]", 3]"#),
        expected(&[r#"{"a":[1,2]}"#, r#""x,]""#, "3"])
    );
    for bad in ["", "{}", "[1", "[1,]", "[,1]", "[1]]", " [1]", "[1}"] {
        assert_eq!(list_elements(bad), None, "{bad}");
    }
}

#[test]
fn many_numbers_that_are_no_integers_are_read_in_one_pass() {
    // Each number would be an array's worth of work, if each one tried the rest of the array.
    let numbers = vec!["0.5"; 200_000].join(",");
    check(&format!(r#"{{"a":[{numbers}]}}"#), Some(2));
}

proptest! {
    #[test]
    fn lists_of_numbers_are_read_as_serde_json_reads_them(list in "[0-9]{1,2}[0-9, ]{0,12}") {
        let body = format!("{{\"a\":[{list}]}}");
        if read(body.as_bytes(), b"", |_| Some(())).is_some() {
            prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&body).is_ok(), "{}", body);
        }
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i16>().prop_map(|number| Value::from(f64::from(number) / 4.0)),
        "[\\[{}\\\\\"\\],:\n\u{1}é a]{0,40}".prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-f{\"]{0,3}", inner), 0..4)
                .prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn objects_are_read_as_serde_json_reads_them(
        fields in prop::collection::vec(("[a-f]{0,3}", values()), 0..5),
        is_pretty in any::<bool>(),
    ) {
        let object: Map<_, _> = fields.into_iter().collect();
        let text = if is_pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) };
        let members = rebuilt(text.unwrap().as_bytes()).map(|(members, _)| members);
        prop_assert_eq!(members, Some(object));
    }

    #[test]
    fn takes_nothing_that_serde_json_refuses(
        fields in prop::collection::vec(("[a-f]{0,3}", values()), 0..4),
        at in any::<prop::sample::Index>(),
        with in prop::option::of(prop::sample::select(&b"{}[],:\"\\0-.e tn\n\x01u"[..])),
    ) {
        let object: Map<_, _> = fields.into_iter().collect();
        let mut text = serde_json::to_vec(&object).unwrap();
        let at = at.index(text.len());
        match with {
            Some(byte) => text[at] = byte,
            None => drop(text.remove(at)),
        }
        if read(&text, b"a", |_| Some(())).is_some() {
            let accepted = serde_json::from_slice::<serde::de::IgnoredAny>(&text);
            prop_assert!(accepted.is_ok(), "{}", String::from_utf8_lossy(&text));
        }
    }

    #[test]
    fn random_bytes_are_read_as_serde_json_reads_them(body in "[{}\\[\\],:\"\\\\0-9eE.+ \\-atrufalsn]{0,24}") {
        let body = format!("{{{body}}}");
        if read(body.as_bytes(), b"a", |_| Some(())).is_some() {
            prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&body).is_ok(), "{}", body);
        }
    }
}
