//! Tests of both formats on equal values and on malformed bodies.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Most integers in the lists of a body here.
const MOST_INTS: usize = 2 * MAX_VALUES;

fn parse(format: Format, body: &[u8]) -> Result<Document<'_>, DocumentFault> {
    read(format, body, MOST_INTS)
}

fn fields<'b>(fields: Vec<(&'static str, Field<'b>)>) -> Document<'b> {
    let fields = fields.into_iter();
    Document {
        fields: fields.map(|(key, field)| (Cow::Borrowed(key), field)).collect(),
    }
}

#[test]
fn json_and_msgpack_of_the_same_values_are_the_same_document() {
    let expected = fields(vec![
        ("a", Field::Ints(vec![1, -2, 300])),
        (
            "b",
            Field::List(vec![Field::Int(1), Field::Large(u64::MAX), Field::Nil]),
        ),
        ("c", Field::Map(fields(vec![("d", Field::Bool)]))),
        ("e", Field::Float(1.5)),
        ("e", Field::Text("x\n".into())),
    ]);
    let json = br#"{"a": [1, -2, 300], "b": [1, 18446744073709551615, null], "c": {"d": true}, "e": 1.5, "e": "x\n"}"#;
    assert_eq!(parse(Format::Json, json), Ok(expected.clone()));
    let mut msgpack =
        b"\x85\xa1a\x93\x01\xfe\xcd\x01\x2c\xa1b\x93\x01\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xc0".to_vec();
    msgpack.extend(b"\xa1c\x81\xa1d\xc3\xa1e\xca\x3f\xc0\x00\x00\xa1e\xa2x\n");
    assert_eq!(parse(Format::Msgpack, &msgpack), Ok(expected));
}

#[test]
fn msgpack_integers_of_every_width_are_integers() {
    let bytes = b"\x81\xa1a\x99\xcc\xff\xcd\x00\x01\xce\x00\x00\x00\x02\xcf\x00\x00\x00\x00\x00\x00\x00\x03\xd0\xff\xd1\xff\xfe\xd2\
        \xff\xff\xff\xfd\xd3\xff\xff\xff\xff\xff\xff\xff\xfc\x7f";
    let expected = Field::Ints(vec![255, 1, 2, 3, -1, -2, -3, -4, 127]);
    assert_eq!(parse(Format::Msgpack, bytes), Ok(fields(vec![("a", expected)])));
}

#[test]
fn only_a_whole_map_is_a_document() {
    let check = |format, body: &[u8], fault| {
        assert_eq!(parse(format, body), Err(fault), "{format:?} {body:?}");
    };
    check(Format::Json, b"", DocumentFault::Malformed);
    check(Format::Json, b"{} x", DocumentFault::Malformed);
    check(Format::Json, b"{\"a\": 1,}", DocumentFault::Malformed);
    check(Format::Json, b"[1]", DocumentFault::NotAMap);
    check(Format::Json, "[".repeat(100).as_bytes(), DocumentFault::Malformed);
    check(Format::Msgpack, b"", DocumentFault::Malformed);
    check(Format::Msgpack, b"\x82\xa1a\x01", DocumentFault::Malformed);
    check(Format::Msgpack, b"\xdd\xff\xff\xff\xff", DocumentFault::Malformed);
    check(Format::Msgpack, b"\x81\xa1\xff\x01", DocumentFault::Malformed);
    check(Format::Msgpack, b"\x91\x01", DocumentFault::NotAMap);
    check(Format::Msgpack, b"\x81\x01\x01", DocumentFault::KeyNotText);
    check(Format::Msgpack, b"\x81\xc4\x01k\x01", DocumentFault::KeyNotText);
    check(Format::Msgpack, &[0x91; 100], DocumentFault::Malformed);
}

#[test]
fn bytes_after_a_msgpack_map_are_ignored() {
    let expected = fields(vec![("a", Field::Int(1))]);
    assert_eq!(parse(Format::Msgpack, b"\x81\xa1a\x01\xc1\xc1"), Ok(expected));
}

#[test]
fn more_values_than_any_request_has_are_refused() {
    let count = MAX_VALUES + 1;
    let nils = repeated(b"\x81\xa1a\xdd", &[0xc0], count);
    assert_eq!(parse(Format::Msgpack, &nils), Err(DocumentFault::Malformed));
    let pairs = repeated(b"\xdf", &[0xa0, 0xc0], count);
    assert_eq!(parse(Format::Msgpack, &pairs), Err(DocumentFault::Malformed));
    let json = format!("{{\"a\":[{}0]}}", "[],".repeat(count));
    assert_eq!(
        parse(Format::Json, json.as_bytes()),
        Err(DocumentFault::Malformed)
    );
}

#[test]
fn integers_of_a_mixed_list_count_as_values() {
    let json = format!("{{\"a\":[{}null]}}", "1,".repeat(MAX_VALUES));
    assert_eq!(
        parse(Format::Json, json.as_bytes()),
        Err(DocumentFault::Malformed)
    );
    let ints = format!("{{\"a\":[{}1]}}", "1,".repeat(MAX_VALUES));
    assert!(parse(Format::Json, ints.as_bytes()).is_ok());
}

/// Returns `head`, the number of elements in 32 bits, and the elements.
fn repeated(head: &[u8], element: &[u8], count: usize) -> Vec<u8> {
    [head, &(count as u32).to_be_bytes(), &element.repeat(count)].concat()
}

/// Converts a field to a JSON value. Repeated keys are merged.
fn as_value(field: &Field<'_>) -> Value {
    match field {
        Field::Nil => Value::Null,
        Field::Bool => Value::Bool(true),
        Field::Int(number) => Value::from(*number),
        Field::Large(number) => Value::from(*number),
        Field::Float(number) => Value::from(*number),
        Field::Text(text) => Value::from(&**text),
        Field::Bin(bytes) => Value::from(&**bytes),
        Field::Ints(numbers) => Value::from(numbers.clone()),
        Field::List(fields) => fields.iter().map(as_value).collect(),
        Field::Map(document) => as_object(document),
    }
}

fn as_object(document: &Document<'_>) -> Value {
    let fields = document.fields.iter();
    fields
        .map(|(key, field)| (key.to_string(), as_value(field)))
        .collect()
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(Value::Bool(true)),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        // Halves, because `serde_json` may round other floats.
        any::<i32>().prop_map(|number| Value::from(f64::from(number) + 0.5)),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec(any::<i32>(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..8)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

#[test]
fn lists_have_no_more_integers_than_allowed_together() {
    let too_many = Err(DocumentFault::TooManyInts(3));
    assert!(read(Format::Json, br#"{"a": [1, 2], "b": [3]}"#, 3).is_ok());
    assert_eq!(read(Format::Json, br#"{"a": [1, 2], "b": [3, 4]}"#, 3), too_many);
    assert_eq!(
        read(Format::Msgpack, b"\x81\xa1a\x94\x01\x02\x03\x04", 3),
        too_many
    );
    let bytes = b"\x81\xa1a\xc4\x04\x01\x02\x03\x04";
    assert!(read(Format::Msgpack, bytes, 3).is_ok());
}

proptest! {
    #[test]
    fn json_round_trips(value in any_value(), pretty in any::<bool>()) {
        let value = serde_json::json!({ "v": value });
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        prop_assert_eq!(as_object(&parse(Format::Json, text.as_bytes()).unwrap()), value);
    }

    #[test]
    fn msgpack_round_trips(value in any_value()) {
        let value = serde_json::json!({ "v": value });
        let bytes = rmp_serde::to_vec(&value).unwrap();
        prop_assert_eq!(as_object(&parse(Format::Msgpack, &bytes).unwrap()), value);
    }

    #[test]
    fn json_is_as_strict_as_serde_json(text in r#"[{}\[\]":,0-9eE.\-+ a-ctrufalsn\\\x00]{0,24}"#) {
        let text = format!("{{\"a\":{text}}}");
        let theirs = serde_json::from_str::<Value>(&text);
        prop_assert_eq!(parse(Format::Json, text.as_bytes()).is_ok(), theirs.is_ok(), "{}", text);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = parse(Format::Json, &bytes);
        let _ = parse(Format::Msgpack, &bytes);
    }
}
