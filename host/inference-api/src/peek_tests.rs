//! What a peek finds, and what it refuses.

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
        "prompt_cache_key":"k","cache_salt":"s","messages":[{"role":"user","content":"hi"}]} "#;
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
fn token_ids_are_read_when_asked_for_and_only_if_they_are_ids() {
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
        BodyError::NotAnObject => error.to_string(),
    };
    assert_eq!(text, expected);
}

#[test]
fn a_bad_body_is_refused_with_its_place() {
    check_refused("", "EOF while parsing a value at line 1 column 0");
    check_refused(r#"{"model":"#, "EOF while parsing a value at line 1 column 9");
    check_refused("{\n  \"model\": x}", "expected value at line 2 column 12");
    check_refused("{} x", "trailing characters at line 1 column 4");
    check_refused(
        r#"{"model":"a","model":"b"}"#,
        "duplicate field `model` at line 1 column 20",
    );
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
