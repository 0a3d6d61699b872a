//! No bytes of a client or an engine break a claim. The gate tries a few; `fuzz/` is for many.

mod claims;

use inference_api::{Endpoint, peek};
use proptest::collection::vec;
use proptest::prelude::*;

/// Pieces of bodies and streams: plain noise rarely means anything.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ":",
    ",",
    "\"model\":",
    "\"prompt\":",
    "\"messages\":",
    "\"input\":",
    "\"stream\":true",
    "\"n\":2",
    "[1,2,3]",
    "\"text\"",
    "\\u00e9",
    "\\ud800",
    "é",
    "1e999",
    "-1",
    "null",
    "data: ",
    "data: [DONE]\n\n",
    "\n\n",
    "\r\n\r\n",
    "event: response.completed\n",
    "\"usage\":{\"prompt_tokens\":5,",
    "\"prompt_tokens_details\":{\"cached_tokens\":3}",
    "\"completion_tokens\":2}",
    "\"error\":{\"code\":404}",
    "\0",
];

/// Bodies and streams that are read.
const SEEDS: [&str; 5] = [
    r#"{"model":"m","stream":true,"max_tokens":9,"n":2,"user":"u","cache_salt":"s","messages":[{"role":"system","content":"be \u00e9"},{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}],"tools":[{"type":"function","function":{"name":"f"}}]}"#,
    r#"{"model":"m","prompt":[1,2,3,4294967295],"echo":true,"prompt_logprobs":1}"#,
    r#"{"model":"m","prompt":["a","b"],"stream":false}"#,
    r#"{"model":"m","max_tokens":5,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}]}"#,
    r#"{"model":"m","previous_response_id":"resp_1","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}],"reasoning":{"effort":"low"}}"#,
];
/// Streams that are read.
const STREAMS: [&str; 2] = [
    "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\ndata: [DONE]\n\n",
    "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\nevent: response.completed\ndata: {\"response\":{\"id\":\"resp_1\",\"usage\":{\"input_tokens\":5,\"output_tokens\":2}}}\n\n",
];

/// Returns one of the texts, cut at a place and with a piece in it.
fn patched(seeds: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let seed = prop::sample::select(seeds);
    let piece = prop::option::of(prop::sample::select(PIECES));
    (seed, any::<prop::sample::Index>(), 0_usize..20, piece).prop_map(|(seed, cut, skip, piece)| {
        let cut = cut.index(seed.len() + 1);
        let resume = (cut + skip).min(seed.len());
        let piece = piece.unwrap_or_default().as_bytes();
        [&seed.as_bytes()[..cut], piece, &seed.as_bytes()[resume..]].concat()
    })
}

fn like_a_body() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 1..4),
    ];
    vec(piece, 0..64).prop_map(|pieces| pieces.concat())
}

/// Returns bytes as the claim cuts them: pieces of any length, each after its length.
fn like_a_stream() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![like_a_body(), patched(&STREAMS)];
    (text, 1_usize..64).prop_map(|(text, width)| {
        let pieces = text.chunks(width).map(|piece| {
            let length = u8::try_from(piece.len()).expect("below 64");
            [&[length], piece].concat()
        });
        pieces.collect::<Vec<_>>().concat()
    })
}

#[test]
fn nesting_without_end_is_seen_before_it_is_parsed() {
    for deep in ["[", "{\"a\":", "[{\"a\":["] {
        claims::body(deep.repeat(200_000).as_bytes());
    }
}

#[test]
fn the_seeds_are_bodies_with_a_model() {
    for seed in SEEDS {
        let is_read =
            |endpoint: &Endpoint| peek(*endpoint, seed.as_bytes()).is_ok_and(|peeked| peeked.model == "m");
        assert!(Endpoint::ALL.iter().any(is_read), "{seed}");
        claims::body(seed.as_bytes());
    }
}

proptest! {
    #[test]
    fn a_body_of_any_bytes_is_peeked_at(bytes in prop_oneof![like_a_body(), patched(&SEEDS)]) {
        claims::body(&bytes);
    }

    #[test]
    fn a_stream_of_any_bytes_is_read_the_same_however_it_is_cut(bytes in like_a_stream()) {
        claims::stream(&bytes);
    }
}
