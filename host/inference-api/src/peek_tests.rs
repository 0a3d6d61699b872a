//! Tests of request inspection.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check<T: PartialEq + std::fmt::Debug>(
    endpoint: Endpoint,
    body: &str,
    fact: impl Fn(&Peek<'_>) -> T,
    expected: T,
) {
    let peek = peek(endpoint, body.as_bytes()).unwrap();
    assert_eq!(fact(&peek), expected, "{body}");
}

fn kind(peek: &Peek<'_>) -> &'static str {
    match peek.prompt.single() {
        Prompt::TokenIds(_) => "ids",
        Prompt::Text(_) => "text",
        Prompt::Messages(_) => "messages",
        Prompt::Batch(_) => "batch",
        Prompt::Other => "other",
    }
}

#[test]
fn reads_the_fields_of_routing_and_skips_all_others() {
    let body = r#" {"x":{"y":[null]},"model":"m","stream":true,"max_tokens":7,"priority":-2,"user":"u",
        "prompt_cache_key":"k","cache_salt":"s","extra_key":"e","messages":[{"role":"user","content":"hi"}]} "#;
    let chat = Endpoint::ChatCompletions;
    check(chat, body, |p| p.model.to_string(), "m".to_owned());
    check(chat, body, |p| p.stream, true);
    check(chat, body, |p| (p.max_tokens, p.priority), (Some(7), Some(-2)));
    check(
        chat,
        body,
        |p| p.user().map(Cow::into_owned),
        Some("u".to_owned()),
    );
    check(
        chat,
        body,
        |p| p.prompt_cache_key().map(Cow::into_owned),
        Some("k".to_owned()),
    );
    check(
        chat,
        body,
        |p| p.cache_salt().map(Cow::into_owned),
        Some("s".to_owned()),
    );
    check(
        chat,
        body,
        |p| p.extra_key().map(Cow::into_owned),
        Some("e".to_owned()),
    );
    check(chat, body, kind, "messages");
}

#[test]
fn a_model_is_borrowed_unless_it_is_escaped() {
    let chat = Endpoint::ChatCompletions;
    check(
        chat,
        r#"{"model":"a/b"}"#,
        |p| matches!(p.model, Cow::Borrowed("a/b")),
        true,
    );
    check(
        chat,
        r#"{"model":"a\/\u0062"}"#,
        |p| p.model.to_string(),
        "a/b".to_owned(),
    );
}

#[test]
fn fields_of_the_wrong_type_count_as_absent() {
    let body = r#"{"model":3,"stream":"yes","max_tokens":-1,"priority":1.5,"user":[],"messages":null}"#;
    let chat = Endpoint::ChatCompletions;
    check(chat, body, |p| p.model.to_string(), String::new());
    check(chat, body, |p| p.stream, false);
    check(chat, body, |p| (p.max_tokens, p.priority), (None, None));
    check(chat, body, |p| p.user().is_none(), true);
    check(chat, body, kind, "other");
}

#[test]
fn the_newest_name_of_the_token_limit_wins() {
    let limit = |p: &Peek<'_>| p.max_tokens;
    check(
        Endpoint::ChatCompletions,
        r#"{"max_tokens":1,"max_completion_tokens":2}"#,
        limit,
        Some(2),
    );
    check(Endpoint::Responses, r#"{"max_output_tokens":3}"#, limit, Some(3));
}

#[test]
fn a_prompt_is_known_by_its_shape() {
    for (prompt, expected) in [
        (r#""hi""#, "text"),
        ("[1,2]", "ids"),
        (" [ 1 ]", "ids"),
        (r#"["hi"]"#, "text"),
        ("[[1,2]]", "ids"),
        (r#"["a","b"]"#, "batch"),
        ("[[1],[2]]", "batch"),
        ("[]", "other"),
        ("{}", "other"),
        ("null", "other"),
    ] {
        check(
            Endpoint::Completions,
            &format!(r#"{{"prompt":{prompt}}}"#),
            kind,
            expected,
        );
        check(
            Endpoint::Embeddings,
            &format!(r#"{{"input":{prompt}}}"#),
            kind,
            expected,
        );
    }
    check(Endpoint::Responses, r#"{"input":"hi"}"#, kind, "text");
    check(
        Endpoint::Responses,
        r#"{"input":[{"role":"user"}]}"#,
        kind,
        "other",
    );
    check(Endpoint::ChatCompletions, r#"{"prompt":"hi"}"#, kind, "other");
}

#[test]
fn token_ids_are_read_when_requested_and_only_if_they_are_ids() {
    let ids = |p: &Peek<'_>| p.token_ids();
    let completions = Endpoint::Completions;
    check(
        completions,
        r#"{"prompt":[1, 4294967295]}"#,
        ids,
        Some(vec![1, u32::MAX]),
    );
    check(completions, r#"{"prompt":[[5,6]]}"#, ids, Some(vec![5, 6]));
    check(completions, "{\"prompt\":[ 1 ,\n2\t]}", ids, Some(vec![1, 2]));
    check(completions, r#"{"prompt":[1,"a"]}"#, ids, None);
    check(completions, r#"{"prompt":[1,-1]}"#, ids, None);
    check(completions, r#"{"prompt":[1,2.5]}"#, ids, None);
    check(completions, r#"{"prompt":[1,1e3]}"#, ids, None);
    check(completions, r#"{"prompt":[1,18446744073709551617]}"#, ids, None);
    check(completions, r#"{"prompt":[1,4294967296]}"#, ids, None);
    check(completions, r#"{"prompt":[[1],[2]]}"#, ids, None);
}

#[track_caller]
fn check_refused(body: &str, expected: &str) {
    let error = peek(Endpoint::ChatCompletions, body.as_bytes()).unwrap_err();
    let text = match &error {
        BodyError::Invalid { source } => source.to_string(),
        BodyError::NotAnObject | BodyError::Form { .. } | BodyError::Query { .. } => error.to_string(),
    };
    assert_eq!(text, expected);
}

#[test]
fn a_bad_body_is_refused_with_its_place() {
    check_refused("", "EOF while parsing a value at line 1 column 0");
    check_refused(r#"{"model":"#, "EOF while parsing a value at line 1 column 9");
    check_refused("{\n  \"model\": x}", "expected value at line 2 column 12");
    check_refused("{} x", "trailing characters at line 1 column 4");
    for body in ["[]", "3", r#""text""#, "null"] {
        check_refused(body, "find a JSON object in the request body");
    }
}

#[test]
fn the_depth_is_known_whichever_way_a_body_is_read() {
    let chat = Endpoint::ChatCompletions;
    for (body, depth) in [
        (r#"{"messages":[{"content":[]}]}"#, 4),
        (r#"{"m\u006fdel":"m","x":[[]]}"#, 3),
        (r#"{"x":"[[[["}"#, 1),
    ] {
        check(
            chat,
            body,
            |p| (p.is_deeper_than(depth - 1), p.is_deeper_than(depth)),
            (true, false),
        );
    }
    let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(500), "]".repeat(500));
    check(
        chat,
        &deep,
        |p| (p.is_deeper_than(500), p.is_deeper_than(501)),
        (true, false),
    );
}

#[test]
fn a_prompt_of_tokens_is_known_with_its_limit_and_adapter() {
    let (vllm, sglang) = (Endpoint::InferenceGenerate, Endpoint::Generate);
    let ids = |peek: &Peek<'_>| peek.token_ids();
    let body = r#"{"model":"m","token_ids":[1,2],"sampling_params":{"max_tokens":7},"stream":true}"#;
    check(vllm, body, ids, Some(vec![1, 2]));
    check(vllm, body, |peek| (peek.max_tokens, peek.stream), (Some(7), true));
    let body = r#"{"input_ids":[[3]],"lora_path":"a","sampling_params":{"max_new_tokens":9}}"#;
    check(sglang, body, ids, Some(vec![3]));
    check(
        sglang,
        body,
        |peek| (peek.max_tokens, peek.model.to_string()),
        (Some(9), "a".to_owned()),
    );
    check(sglang, r#"{"text":"hi"}"#, kind, "text");
    check(sglang, r#"{"text":["a","b"]}"#, kind, "batch");
    check(
        sglang,
        r#"{"model":"m","lora_path":"a"}"#,
        |peek| peek.model.to_string(),
        "m".to_owned(),
    );
    // Elsewhere the field has no meaning.
    check(
        Endpoint::Completions,
        r#"{"lora_path":"a"}"#,
        |peek| peek.model.to_string(),
        String::new(),
    );
}

#[test]
fn a_hand_over_is_seen_wherever_an_engine_reads_one() {
    let forged = |endpoint: Endpoint, body: &str| peek(endpoint, body.as_bytes()).unwrap().forged_member();
    for endpoint in [
        Endpoint::ChatCompletions,
        Endpoint::Completions,
        Endpoint::Messages,
        Endpoint::Embeddings,
        Endpoint::InferenceGenerate,
        Endpoint::Invocations,
    ] {
        for member in [
            "kv_transfer_params",
            "ec_transfer_params",
            "bootstrap_host",
            "bootstrap_port",
            "bootstrap_room",
            "bootstrap_pair_key",
            "disagg_prefill_dp_rank",
        ] {
            for value in ["{}", "\"\"", "0", "[1]"] {
                assert_eq!(
                    forged(endpoint, &format!(r#"{{"{member}":{value}}}"#)),
                    Some(member)
                );
            }
            assert_eq!(forged(endpoint, &format!(r#"{{"{member}":null}}"#)), None);
        }
        for name in ["kv_transfer_params", "ec_transfer_params"] {
            let of_xargs = format!(r#"{{"vllm_xargs":{{"{name}":""}}}}"#);
            let of_sampling = format!(r#"{{"sampling_params":{{"extra_args":{{"{name}":{{}}}}}}}}"#);
            let expected = [
                format!("vllm_xargs.{name}"),
                format!("sampling_params.extra_args.{name}"),
            ];
            for (body, expected) in [of_xargs, of_sampling].iter().zip(expected) {
                assert_eq!(forged(endpoint, body), Some(&*expected));
            }
        }
        assert_eq!(
            forged(
                endpoint,
                r#"{"vllm_xargs":{"top_n":1},"metadata":{"kv_transfer_params":1}}"#
            ),
            None
        );
    }
    let of_xargs = |xargs: &str| forged(Endpoint::Completions, &format!(r#"{{"vllm_xargs":{xargs}}}"#));
    assert!(of_xargs(r#"{"kv_transfer_param\u0073":{}}"#).is_some());
    assert!(of_xargs(r#"{"kv_transfer_params":null}"#).is_none() && of_xargs("3").is_none());
    let long = "x".repeat(1 << 20);
    assert!(of_xargs(&format!(r#"{{"a":"{long}","kv_transfer_params":1}}"#)).is_some());
    assert!(of_xargs(&format!(r#"{{"a":"{long}"}}"#)).is_none());
    let sampling = |parameters: &str| {
        forged(
            Endpoint::InferenceGenerate,
            &format!(r#"{{"token_ids":[1],"sampling_params":{parameters}}}"#),
        )
    };
    assert!(sampling(r#"{"extra_args":{},"extra_args":{"kv_transfer_param\u0073":{}}}"#).is_some());
    assert!(sampling(r#"{"extra_args":{"kv_transfer_params":null}}"#).is_none());
    assert!(sampling(r#"{"max_tokens":1}"#).is_none() && sampling("3").is_none());
    assert!(
        sampling(&format!(
            r#"{{"a":"{long}","extra_args":{{"kv_transfer_params":1}}}}"#
        ))
        .is_some()
    );
}

#[test]
fn an_invocation_has_the_prompt_of_the_endpoint_it_is_meant_for() {
    let check_kind = |body, expected| check(Endpoint::Invocations, body, kind, expected);
    check_kind(r#"{"messages":[]}"#, "messages");
    check_kind(r#"{"prompt":"a"}"#, "text");
    check_kind(r#"{"input":[1]}"#, "ids");
    check_kind("{}", "other");
}

#[test]
fn only_streaming_endpoints_stream() {
    let stream = |peek: &Peek<'_>| peek.stream;
    check(Endpoint::Speech, r#"{"stream":true}"#, stream, false);
    check(Endpoint::Completions, r#"{"stream":true}"#, stream, true);
}

#[test]
fn a_body_is_read_by_the_kind_that_its_endpoint_takes() {
    let form_type = Some(&b"multipart/form-data; boundary=b"[..]);
    let form = b"--b\r\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n--b--";
    let json = br#"{"model":"j"}"#;
    let model = |endpoint, content_type, body: &[u8]| {
        read_body(endpoint, content_type, body)
            .ok()
            .map(|peek| peek.model.to_string())
    };
    let is = |name: &str| Some(name.to_owned());
    assert_eq!(model(Endpoint::Transcriptions, form_type, form), is("m"));
    assert_eq!(model(Endpoint::Transcriptions, None, form), None);
    assert_eq!(
        model(Endpoint::Transcriptions, Some(b"application/json"), json),
        None
    );
    assert_eq!(model(Endpoint::Rerank, form_type, json), is("j"));
    for (content_type, body, expected) in [
        (form_type, &form[..], "m"),
        (None, json, "j"),
        (None, b"\xef\xbb\xbf{\"model\":\"j\"}", "j"),
        (None, b"", ""),
        (form_type, b"--c", ""),
    ] {
        assert_eq!(model(Endpoint::Forwarded, content_type, body), is(expected));
    }
}

#[test]
fn an_endpoint_without_a_body_names_its_model_in_the_query() {
    let peek = read_query(Endpoint::Realtime, "model=org%2Fm").unwrap();
    assert_eq!(peek.model, "org/m");
    assert!(!peek.stream && !peek.is_deeper_than(0));
    assert_eq!(peek.form_size(), Some(FormSize::default()));
    assert_eq!(read_query(Endpoint::Realtime, "").unwrap().model, "");
    assert!(read_query(Endpoint::Realtime, "model=a&model=b").is_err());
    let named = read_body(Endpoint::Realtime, None, br#"{"model":"m"}"#).unwrap();
    assert_eq!(named.model, "");
}

#[test]
fn a_byte_order_mark_is_skipped() {
    assert_eq!(without_bom(Bytes::from_static(b"\xef\xbb\xbf{}")), "{}");
    assert_eq!(without_bom(Bytes::from_static(b"{}")), "{}");
}

proptest! {
    #[test]
    fn ids_are_those_that_serde_json_reads(ids in r"[0-9]{1,11}(, ?[0-9]{1,11}){0,6}") {
        let body = format!(r#"{{"prompt":[{ids}]}}"#);
        if let Ok(peek) = peek(Endpoint::Completions, body.as_bytes()) {
            prop_assert_eq!(peek.token_ids(), serde_json::from_str::<Vec<u32>>(&format!("[{ids}]")).ok());
        }
    }

    #[test]
    fn random_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        for endpoint in Endpoint::ALL.iter().copied() {
            if let Ok(peek) = peek(endpoint, &body) {
                let _ = (peek.token_ids(), peek.tokenize_body(), peek.user());
            }
        }
    }

    #[test]
    fn bodies_that_look_right_never_panic(
        name in "model|prompt|input|messages|max_tokens|priority|user|instructions",
        value in r#"[\[\]{}",:0-9a-z\\ .-]{0,40}"#,
    ) {
        let body = format!(r#"{{"{name}":{value}}}"#);
        for endpoint in Endpoint::ALL.iter().copied() {
            if let Ok(peek) = peek(endpoint, body.as_bytes()) {
                let _ = (peek.token_ids(), peek.tokenize_body(), peek.user());
            }
        }
    }
}

#[test]
fn a_list_of_ids_that_the_engine_cuts_off_is_none() {
    let has_list = |body: &str| {
        peek(Endpoint::Completions, body.as_bytes())
            .unwrap()
            .id_list()
            .is_some()
    };
    assert!(has_list(r#"{"prompt":[1,2]}"#));
    assert!(has_list(r#"{"prompt":[1,2],"truncate_prompt_tokens":-1}"#));
    assert!(has_list(r#"{"prompt":[1,2],"truncate_prompt_tokens":null}"#));
    assert!(!has_list(r#"{"prompt":[1,2],"truncate_prompt_tokens":1}"#));
}
