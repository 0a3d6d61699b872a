//! The exact bodies of both legs, for every dialect; and which requests have no legs at all.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test's own functions fail by panicking too"
)]

use bytes::Bytes;
use inference_api::{Endpoint, Handshake, HandshakeError, Split, peek, splits};
use routing::Dialect;
use serde_json::value::RawValue;

use Endpoint::{ChatCompletions as Chat, Completions};

/// Members that a NIXL prefill leg receives, vLLM 0.32; `<P>` in the tables.
const NIXL_PREFILL: &str = r#""kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}"#;
/// Members of that leg's answer, cut short and oddly spaced; `<D>` in the tables.
const NIXL_PARAMS: &str =
    r#"{"do_remote_prefill":true, "remote_block_ids":[[1,2]],"remote_request_id":"cmpl-\u00e9-0"}"#;

const MOONCAKE: Handshake<'_> = Handshake::Mooncake {
    transfer_id: "xfer-1",
    bootstrap: "http://p:8998",
    engine_id: "e\"1",
};
const MOONCAKE_PREFILL: &str =
    r#""kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"xfer-1"}"#;
const MOONCAKE_DECODE: &str = r#""kv_transfer_params":{"do_remote_decode":false,"do_remote_prefill":true,"remote_bootstrap_addr":"http://p:8998","remote_engine_id":"e\"1","transfer_id":"xfer-1"}"#;

const fn sglang(
    port: Option<u16>,
    room: u64,
    prefill_rank: Option<u16>,
    decode_rank: Option<u16>,
) -> Handshake<'static> {
    Handshake::Sglang {
        host: "10.0.0.1",
        port,
        room,
        prefill_rank,
        decode_rank,
    }
}

#[track_caller]
fn check(endpoint: Endpoint, handshake: &Handshake<'_>, body: &str, prefill: &str, decode: &str) {
    let (p, d) = match handshake {
        Handshake::Nixl { .. } => (
            NIXL_PREFILL.to_owned(),
            format!("\"kv_transfer_params\":{NIXL_PARAMS}"),
        ),
        Handshake::Mooncake { .. } => (MOONCAKE_PREFILL.to_owned(), MOONCAKE_DECODE.to_owned()),
        _ => (String::new(), String::new()),
    };
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let split = Split::read(endpoint, &bytes).unwrap();
    for (name, leg, expected) in [
        ("prefill", split.prefill(handshake), prefill),
        ("decode", split.decode(handshake), decode),
    ] {
        let expected = expected.replace("<P>", &p).replace("<D>", &d);
        assert_eq!(std::str::from_utf8(&leg).unwrap(), expected, "{name} of {body}");
        serde_json::from_slice::<serde_json::Value>(&leg).unwrap();
        assert_eq!(
            expected == body,
            leg.as_ptr() == bytes.as_ptr(),
            "{name}: copied only if edited"
        );
    }
}

#[test]
fn nixl_prefills_one_token_and_passes_the_answers_parameters_on() {
    let params: &RawValue = serde_json::from_str(NIXL_PARAMS).unwrap();
    let nixl = Handshake::Nixl { params: Some(params) };
    // Absent members stay absent, but for the limit.
    check(
        Completions,
        &nixl,
        r#"{"model":"m","prompt":[1,2,3]}"#,
        r#"{"model":"m","prompt":[1,2,3],"max_tokens":1,<P>}"#,
        r#"{"model":"m","prompt":[1,2,3],<D>}"#,
    );
    // A streamed chat with everything.
    check(
        Chat,
        &nixl,
        r#"{"max_completion_tokens":64,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"say \"max_tokens\":2, }"}],"stream":true,"n":3,"min_tokens":7,"stop":["a"],"tools":[{"type":"function"}],"tool_choice":"required","logprobs":true,"top_logprobs":2,"x-unknown":{"n":4}}"#,
        r#"{"max_completion_tokens":1,"messages":[{"role":"user","content":"say \"max_tokens\":2, }"}],"stream":false,"n":1,"min_tokens":1,"stop":["a"],"tools":[{"type":"function"}],"tool_choice":"required","logprobs":true,"top_logprobs":2,"x-unknown":{"n":4},"max_tokens":1,<P>}"#,
        r#"{"max_completion_tokens":64,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"say \"max_tokens\":2, }"}],"stream":true,"n":3,"min_tokens":7,"stop":["a"],"tools":[{"type":"function"}],"tool_choice":"required","logprobs":true,"top_logprobs":2,"x-unknown":{"n":4},<D>}"#,
    );
    // Whitespace is the client's; so are numbers that need no change or that no engine takes.
    check(
        Completions,
        &nixl,
        "\n{ \"prompt\" : \"a\" ,\r\n\t\"max_tokens\" : 9 , \"min_tokens\": 1, \"n\": 0, \"stream\": false, \"stream_options\": null }\n",
        "\n{ \"prompt\" : \"a\" ,\r\n\t\"max_tokens\" : 1 , \"min_tokens\": 1, \"n\": 0, \"stream\": false, \"stream_options\": null,<P> }\n",
        "\n{ \"prompt\" : \"a\" ,\r\n\t\"max_tokens\" : 9 , \"min_tokens\": 1, \"n\": 0, \"stream\": false, \"stream_options\": null,<D> }\n",
    );
    check(
        Chat,
        &nixl,
        r#"{"max_tokens":-1,"max_completion_tokens":"x","min_tokens":2.5,"n":"1_0"}"#,
        r#"{"max_tokens":-1,"max_completion_tokens":"x","min_tokens":2.5,"n":1,<P>}"#,
        r#"{"max_tokens":-1,"max_completion_tokens":"x","min_tokens":2.5,"n":"1_0",<D>}"#,
    );
    // A null of the router's own counts as absent and is where the value goes; escaped names are what they mean.
    check(
        Completions,
        &nixl,
        r#"{"kv_transfer_params":null,"prompt":"a","str\u0065am":true,"m\u0061x_tokens":5,"n":"2"}"#,
        r#"{<P>,"prompt":"a","str\u0065am":false,"m\u0061x_tokens":1,"n":1}"#,
        r#"{<D>,"prompt":"a","str\u0065am":true,"m\u0061x_tokens":5,"n":"2"}"#,
    );
}

#[test]
fn options_that_repeat_the_prompt_are_left_to_the_decode_leg() {
    check(
        Completions,
        &Handshake::Store,
        r#"{"prompt":"a","max_tokens":9,"return_token_ids":true,"return_routed_experts":true,"top_k":1}"#,
        r#"{"prompt":"a","max_tokens":1,"top_k":1}"#,
        r#"{"prompt":"a","max_tokens":9,"return_token_ids":true,"return_routed_experts":true,"top_k":1}"#,
    );
}

#[test]
fn without_parameters_a_nixl_decode_leg_is_the_clients_request() {
    let body = Bytes::from_static(br#"{"prompt":[1]}"#);
    let split = Split::read(Completions, &body).unwrap();
    assert_eq!(split.decode(&Handshake::Nixl { params: None }), body);
}

#[test]
fn mooncake_prefills_a_token_that_cannot_stop() {
    check(
        Completions,
        &MOONCAKE,
        r#"{"prompt":"a","max_tokens":16,"stop":"x","temperature":0,"stop_token_ids":[2]}"#,
        r#"{"prompt":"a","max_tokens":1,"temperature":0,"ignore_eos":true,<P>}"#,
        r#"{"prompt":"a","max_tokens":16,"stop":"x","temperature":0,"stop_token_ids":[2],<D>}"#,
    );
    // Dropped at the front, in the middle and at the end, with their commas.
    check(
        Chat,
        &MOONCAKE,
        r#"{ "stop" : [] , "stop_token_ids":[1], "messages":[] , "ignore_eos": false, "stream":true , "stream_options":{} }"#,
        r#"{ "messages":[] , "ignore_eos": true, "stream":false,"max_tokens":1,<P> }"#,
        r#"{ "stop" : [] , "stop_token_ids":[1], "messages":[] , "ignore_eos": false, "stream":true , "stream_options":{},<D> }"#,
    );
    // Nothing is left, nothing was there, and what is null is left.
    check(
        Chat,
        &MOONCAKE,
        r#"{"stop":"x", "stop_token_ids":[1]}"#,
        r#"{"max_tokens":1,"ignore_eos":true,<P>}"#,
        r#"{"stop":"x", "stop_token_ids":[1],<D>}"#,
    );
    check(
        Chat,
        &MOONCAKE,
        "{ }",
        r#"{"max_tokens":1,"ignore_eos":true,<P> }"#,
        r#"{<D> }"#,
    );
    check(
        Chat,
        &MOONCAKE,
        r#"{"stop":null,"max_tokens":null,"ignore_eos":true}"#,
        r#"{"stop":null,"max_tokens":1,"ignore_eos":true,<P>}"#,
        r#"{"stop":null,"max_tokens":null,"ignore_eos":true,<D>}"#,
    );
}

#[test]
fn a_store_gets_one_token_and_then_the_request_as_it_is() {
    check(
        Completions,
        &Handshake::Store,
        r#"{"prompt":["a","b"],"stream":true,"max_tokens":9,"logprobs":1}"#,
        r#"{"prompt":["a","b"],"stream":false,"max_tokens":1,"logprobs":1}"#,
        r#"{"prompt":["a","b"],"stream":true,"max_tokens":9,"logprobs":1}"#,
    );
    let already = r#"{"prompt":"a","max_tokens":1}"#;
    check(Completions, &Handshake::Store, already, already, already);
}

#[test]
fn sglang_gets_the_same_body_twice_with_a_room_for_each_prompt() {
    let single = r#"{"messages":[],"max_tokens":9,"stream":true,"bootstrap_host":"10.0.0.1","bootstrap_port":8998,"bootstrap_room":7}"#;
    check(
        Chat,
        &sglang(Some(8998), 7, None, None),
        r#"{"messages":[],"max_tokens":9,"stream":true}"#,
        single,
        single,
    );
    let batch = r#"{"prompt":["a","[\"b"],"bootstrap_host":["10.0.0.1","10.0.0.1"],"bootstrap_port":[null,null],"bootstrap_room":[9223372036854775807,0]}"#;
    check(
        Completions,
        &sglang(None, i64::MAX as u64, None, None),
        r#"{"prompt":["a","[\"b"]}"#,
        batch,
        batch,
    );
    let one = r#"{"prompt":[[1,2]],"bootstrap_host":"10.0.0.1","bootstrap_port":1,"bootstrap_room":7}"#;
    check(
        Completions,
        &sglang(Some(1), 7, None, None),
        r#"{"prompt":[[1,2]]}"#,
        one,
        one,
    );
    check(
        Completions,
        &sglang(Some(1), 7, Some(2), Some(0)),
        r#"{"routed_dp_rank":null,"prompt":[1,2]}"#,
        r#"{"routed_dp_rank":2,"prompt":[1,2],"bootstrap_host":"10.0.0.1","bootstrap_port":1,"bootstrap_room":7}"#,
        r#"{"routed_dp_rank":0,"prompt":[1,2],"bootstrap_host":"10.0.0.1","bootstrap_port":1,"bootstrap_room":7,"disagg_prefill_dp_rank":2}"#,
    );
}

#[test]
fn a_batch_of_many_prompts_gets_one_room_to_count_on_from() {
    let prompts = vec!["\"a\""; 1025].join(",");
    let body = Bytes::from(format!("{{\"prompt\":[{prompts}]}}"));
    let split = Split::read(Completions, &body).unwrap();
    let leg = split.prefill(&sglang(Some(1), 7, None, None));
    assert!(leg.ends_with(br#""bootstrap_room":7}"#));
    assert!(leg.len() < body.len() + 100);
}

#[track_caller]
fn refused(body: &str, expected: &str) {
    let error = Split::read(Completions, &Bytes::copy_from_slice(body.as_bytes())).unwrap_err();
    assert_eq!(error.to_string(), expected, "{body}");
}

#[test]
fn a_client_cannot_forge_a_leg() {
    for member in [
        "kv_transfer_params",
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "bootstrap_pair_key",
        "routed_dp_rank",
        "data_parallel_rank",
        "disagg_prefill_dp_rank",
    ] {
        let expected = format!("accept a request with `{member}`, which only a router may set");
        refused(&format!(r#"{{"a":1,"{member}":0}}"#), &expected);
        let escaped = format!("\\u{:04x}{}", u32::from(member.as_bytes()[0]), &member[1..]);
        refused(&format!(r#"{{"a":1,"{escaped}":0}}"#), &expected);
    }
    // Whichever of two an engine takes.
    let expected = "accept a request with `kv_transfer_params`, which only a router may set";
    refused(r#"{"kv_transfer_params":null,"kv_transfer_params":{}}"#, expected);
    refused(r#"{"kv_transfer_params":{},"kv_transfer_params":null}"#, expected);
    let crowd = vec![r#""n":1"#; 65].join(",");
    refused(
        &format!("{{{crowd}}}"),
        "accept a request with more than 64 members that a handshake touches",
    );
    for body in ["[]", "1", "", "{\"a\":1", "{} {}"] {
        refused(body, "read the request body as a JSON object");
    }
    // Deeper down they are the client's own affair.
    let body = Bytes::from_static(br#"{"metadata":{"kv_transfer_params":1},"x":[1],"x":2}"#);
    assert!(Split::read(Chat, &body).is_ok());
    let forged = Split::read(
        Endpoint::Embeddings,
        &Bytes::from_static(br#"{"bootstrap_room":1}"#),
    );
    assert!(matches!(forged, Err(HandshakeError::Forged { .. })));
}

#[test]
fn a_member_that_stands_there_twice_is_changed_in_both_places_and_its_last_counts() {
    let legs = |body: &str| {
        let split = Split::read(Completions, &Bytes::copy_from_slice(body.as_bytes())).unwrap();
        let leg = split.prefill(&Handshake::Store);
        String::from_utf8(leg.to_vec()).unwrap()
    };
    assert_eq!(
        legs(r#"{"stream":false,"max_tokens":5,"strea\u006d":true,"max_tokens":6}"#),
        r#"{"stream":false,"max_tokens":1,"strea\u006d":false,"max_tokens":1}"#
    );
    // None of the two may come back.
    assert_eq!(
        legs(r#"{"stream_options":{},"max_tokens":1, "stream_options":{"a":1}}"#),
        r#"{"max_tokens":1}"#
    );
    assert_eq!(
        legs(r#"{"max_tokens":0,"max_tokens":1}"#),
        r#"{"max_tokens":0,"max_tokens":1}"#
    );
}

#[track_caller]
fn split_by(endpoint: Endpoint, body: &str, expected: &[Dialect]) {
    let peek = peek(endpoint, body.as_bytes()).unwrap();
    let dialects: Vec<_> = Dialect::ALL
        .into_iter()
        .filter(|&dialect| splits(&peek, dialect))
        .collect();
    assert_eq!(dialects, expected, "{body}");
}

#[test]
fn only_what_both_engines_can_do_their_part_of_is_split() {
    let all = &Dialect::ALL;
    let with_batches = &[Dialect::Store, Dialect::Sglang];
    split_by(Chat, r#"{"messages":[]}"#, all);
    for prompt in ["[1,2]", "\"a\"", "[[1,2]]", "[\"a\"]"] {
        split_by(Completions, &format!("{{\"prompt\":{prompt}}}"), all);
    }
    // Several prompts, or what may be.
    for prompt in ["[[1],[2]]", "[\"a\",\"b\"]", "[]", "null"] {
        split_by(Completions, &format!("{{\"prompt\":{prompt}}}"), with_batches);
    }
    split_by(
        Completions,
        r#"{"prompt":"a","prompt_embeds":"AA"}"#,
        with_batches,
    );
    split_by(Completions, r#"{"prompt_embeds":["AA"]}"#, with_batches);
    // The prompt's log-probabilities come from the worker that computes it.
    split_by(Completions, r#"{"prompt":"a","echo":true,"logprobs":1}"#, &[]);
    split_by(Chat, r#"{"messages":[],"prompt_logprobs":0}"#, &[]);
    split_by(
        Chat,
        r#"{"messages":[],"prompt_logprobs":null,"echo":false,"logprobs":true}"#,
        all,
    );
    // Beam search forgets the handshake; samples share a transfer, or a room.
    split_by(Chat, r#"{"messages":[],"use_beam_search":true,"n":2}"#, &[]);
    split_by(Chat, r#"{"messages":[],"n":2}"#, &[Dialect::Nixl, Dialect::Store]);
    split_by(Chat, r#"{"messages":[],"n":1}"#, all);
    split_by(Endpoint::Embeddings, r#"{"input":"a"}"#, &[]);
    split_by(Endpoint::Responses, r#"{"input":"a"}"#, &[]);
}
