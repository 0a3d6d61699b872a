//! Whatever the body, its legs mean what editing the parsed JSON would mean, and keep every other byte.
#![allow(clippy::unwrap_used, reason = "a test's own functions fail by panicking too")]

use bytes::Bytes;
use inference_api::{Endpoint, Handshake, Split};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const TOUCHED: [&str; 12] = [
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "n",
    "stream",
    "stream_options",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "prompt",
    "metadata",
    "kv_transfer_params",
];

/// Returns a member's name, sometimes with its first letter escaped, or one of the client's own.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(&TOUCHED[..]).prop_map(str::to_owned),
        2 => prop::sample::select(&TOUCHED[..])
            .prop_map(|name| format!("\\u{:04x}{}", u32::from(name.as_bytes()[0]), &name[1..])),
        3 => "[a-z]{1,6}_x",
    ]
}

fn value() -> impl Strategy<Value = String> {
    let plain = [
        "null",
        "true",
        "false",
        "0",
        "1",
        "2",
        "-3",
        "1.5",
        "7e2",
        "\"5\"",
        "\"}{,\\\"stop\\\":1\"",
        "[]",
        "{}",
        "[ 1, {\"n\":2} ,[\"]\"]]",
        "{ \"stream\" : true }",
        "\"é\\u00e9\"",
    ];
    prop::sample::select(plain.to_vec()).prop_map(str::to_owned)
}

fn space() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "", "", " ", "\n  ", "\t\r\n"]).prop_map(str::to_owned)
}

/// Returns a body. The unescaped names of its members are all different.
fn body() -> impl Strategy<Value = String> {
    let member = (name(), value(), [space(), space(), space(), space()]);
    (prop::collection::vec(member, 0..9), space(), space(), space()).prop_map(
        |(members, before, inside, after)| {
            let mut seen = Vec::new();
            let mut parts = Vec::new();
            for (name, value, [a, b, c, d]) in members {
                let meant: String = serde_json::from_str(&format!("\"{name}\"")).unwrap();
                let value = if meant == "kv_transfer_params" {
                    "null"
                } else {
                    value.as_str()
                };
                if !seen.contains(&meant) {
                    parts.push(format!("{a}\"{name}\"{b}:{c}{value}{d}"));
                    seen.push(meant);
                }
            }
            let inside = if parts.is_empty() { inside } else { String::new() };
            format!("{before}{{{inside}{}}}{after}", parts.join(","))
        },
    )
}

fn is_whole_from(least: f64, value: &Value) -> bool {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    number.is_some_and(|number| number.fract() == 0.0 && number >= least)
}

/// Makes the same edits on a parsed body.
fn one_token(body: &mut Map<String, Value>) {
    let limit = body.get("max_tokens").unwrap_or(&Value::Null);
    if limit.is_null() || is_whole_from(1.0, limit) {
        body.insert("max_tokens".to_owned(), json!(1));
    }
    for (name, least) in [("max_completion_tokens", 1.0), ("min_tokens", 2.0), ("n", 2.0)] {
        if body.get(name).is_some_and(|value| is_whole_from(least, value)) {
            body.insert(name.to_owned(), json!(1));
        }
    }
    if body.get("stream").is_some_and(|stream| !stream.is_null()) {
        body.insert("stream".to_owned(), json!(false));
    }
    remove(body, "stream_options");
}

fn remove(body: &mut Map<String, Value>, name: &str) {
    if body.get(name).is_some_and(|value| !value.is_null()) {
        body.remove(name);
    }
}

fn parsed(leg: &[u8]) -> Map<String, Value> {
    serde_json::from_slice(leg).unwrap()
}

proptest! {
    #[test]
    fn a_leg_means_what_editing_the_parsed_body_would(text in body()) {
        let bytes = Bytes::from(text.clone());
        let split = Split::read(Endpoint::Completions, &bytes).unwrap();
        let client = parsed(&bytes);
        let mut expected = client.clone();
        one_token(&mut expected);
        prop_assert_eq!(parsed(&split.prefill(&Handshake::Store)), expected.clone());
        prop_assert_eq!(split.decode(&Handshake::Store), bytes.clone());

        let mooncake = Handshake::Mooncake { transfer_id: "t", bootstrap: "b", engine_id: "e" };
        expected.insert("ignore_eos".to_owned(), json!(true));
        remove(&mut expected, "stop");
        remove(&mut expected, "stop_token_ids");
        let params = json!({"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": "t"});
        expected.insert("kv_transfer_params".to_owned(), params);
        prop_assert_eq!(parsed(&split.prefill(&mooncake)), expected);

        let mut expected = client.clone();
        let params = json!({"do_remote_decode": false, "do_remote_prefill": true, "remote_bootstrap_addr": "b",
            "remote_engine_id": "e", "transfer_id": "t"});
        expected.insert("kv_transfer_params".to_owned(), params);
        prop_assert_eq!(parsed(&split.decode(&mooncake)), expected);

        let sglang = Handshake::Sglang { host: "h", port: Some(1), room: 5, prefill_rank: Some(3), decode_rank: None };
        let mut expected = client;
        expected.extend([
            ("bootstrap_host".to_owned(), json!("h")),
            ("bootstrap_port".to_owned(), json!(1)),
            ("bootstrap_room".to_owned(), json!(5)),
            ("disagg_prefill_dp_rank".to_owned(), json!(3)),
        ]);
        let leg = split.decode(&sglang);
        prop_assert_eq!(parsed(&leg), expected);
        // A body that only gains members is the client's, byte for byte, up to its last member.
        let kept = text.trim_end().strip_suffix('}').unwrap().trim_end();
        prop_assert!(leg.starts_with(kept.as_bytes()));
        prop_assert!(leg.ends_with(&text.as_bytes()[kept.len()..]));
    }

    #[test]
    fn no_body_makes_it_fail_in_another_way_than_an_error(text in "[{}\\[\\]\",: a-z0-9\\\\]{0,40}") {
        let _ = Split::read(Endpoint::Completions, &Bytes::from(text));
    }
}
