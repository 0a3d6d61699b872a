//! The handshakes of real pairs of engines (vLLM 0.32, `../shared/data/captures/pd`), made again from what the client
//! would have sent. Skipped where the captures are not there; `handshake_bodies.rs` makes the same claims without them.
#![allow(clippy::unwrap_used, reason = "a test's own functions fail by panicking too")]

use std::path::Path;

use bytes::Bytes;
use inference_api::{CachedTokensFilter, Endpoint, Handshake, PrefillAnswer, Split};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Exchange {
    label: String,
    path: String,
    request: Option<Box<RawValue>>,
    response: Box<RawValue>,
}

/// Returns both legs of every captured request that had two.
fn pairs(name: &str) -> Vec<(Exchange, Exchange)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/captures/pd");
    let Ok(lines) = std::fs::read_to_string(folder.join(name)) else {
        println!("skipped: `{}` is not there", folder.display());
        return Vec::new();
    };
    let mut exchanges: Vec<Exchange> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut pairs = Vec::new();
    while let Some(exchange) = exchanges.pop() {
        let Some(request) = exchange.label.strip_suffix(": decode") else {
            continue;
        };
        let prefill = format!("{request}: prefill");
        if let Some(at) = exchanges.iter().position(|other| other.label == prefill) {
            pairs.push((exchanges.remove(at), exchange));
        }
    }
    assert!(pairs.len() >= 5, "{name} has {} pairs", pairs.len());
    pairs
}

fn object(raw: &RawValue) -> Map<String, Value> {
    serde_json::from_str(raw.get()).unwrap()
}

/// Makes both legs again, from the decode leg without its handshake. The handshake itself is the captured one.
fn check(prefill: &Exchange, decode: &Exchange, handshake: &Handshake<'_>) {
    let request = decode.request.as_ref().unwrap();
    let mut client = object(request);
    client.remove("kv_transfer_params");
    let endpoint = Endpoint::of_path(&decode.path).unwrap();
    let body = Bytes::from(serde_json::to_vec(&client).unwrap());
    let split = Split::read(endpoint, &body).unwrap();
    let leg = |bytes: Bytes| -> Map<String, Value> { serde_json::from_slice(&bytes).unwrap() };
    assert_eq!(leg(split.decode(handshake)), object(request), "{}", decode.label);
    let mut expected = object(prefill.request.as_ref().unwrap());
    if !client.contains_key("stream") {
        // The capturing script wrote what is the default.
        assert_eq!(expected.remove("stream"), Some(json!(false)));
    }
    // The capturing script sent it with both legs. The prefill leg works without it.
    expected.remove("return_token_ids");
    assert_eq!(leg(split.prefill(handshake)), expected, "{}", prefill.label);
}

#[test]
fn nixl_legs_are_those_that_worked() {
    for (prefill, decode) in pairs("nixl.requests.jsonl") {
        let answer = PrefillAnswer::read(prefill.response.get().as_bytes()).unwrap();
        let params = answer.params.unwrap();
        assert!(answer.cached_tokens.is_some() && !answer.stopped);
        // Verbatim: the capturing script parsed and wrote them again, so compare what they mean.
        check(&prefill, &decode, &Handshake::Nixl { params: Some(params) });
    }
}

#[test]
fn mooncake_legs_are_those_that_worked_and_usage_is_put_right() {
    let mut streamed = 0;
    for (prefill, decode) in pairs("mooncake.requests.jsonl") {
        let request = object(decode.request.as_ref().unwrap());
        let text = |name: &str| request["kv_transfer_params"][name].as_str().unwrap();
        let handshake = Handshake::Mooncake {
            transfer_id: text("transfer_id"),
            bootstrap: text("remote_bootstrap_addr"),
            engine_id: text("remote_engine_id"),
        };
        check(&prefill, &decode, &handshake);

        let answer = PrefillAnswer::read(prefill.response.get().as_bytes()).unwrap();
        assert!(answer.params.is_none() && !answer.stopped);
        // A stream was captured as a string, anything else as its JSON.
        let response = serde_json::from_str::<String>(decode.response.get());
        streamed += usize::from(response.is_ok());
        let response = response.unwrap_or_else(|_| decode.response.get().to_owned());
        if response.contains("\"error\"") {
            continue;
        }
        let cached = answer.cached_tokens.unwrap();
        let mut filter = CachedTokensFilter::new(Some(cached));
        let passed = [filter.push(Bytes::from(response.clone())), filter.finish()].concat();
        let passed = String::from_utf8(passed).unwrap();
        let number = to_raw_value(&cached).unwrap();
        let count = passed.split("\"cached_tokens\":").nth(1).unwrap().trim_start();
        assert!(count.starts_with(number.get()), "{}", decode.label);
        assert_eq!(passed.matches("cached_tokens").count(), 1);
        assert!(response.len().abs_diff(passed.len()) < 4);
    }
    println!("{streamed} streams");
}
