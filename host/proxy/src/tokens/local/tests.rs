//! Tests of tokenization in the router.

use futures_util::FutureExt as _;
use http::HeaderMap;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokenize::Files;

use super::*;
use crate::base::timeouts::RequestLimits;
use crate::tokens::metrics::TokensMetrics;
use crate::tokens::spec::{
    ModelSpec, ModelTokens, ModelsSpec, Source, TokenSource, TokenizingLimits, TokenizingPlan,
};

const SECOND: Duration = Duration::from_secs(1);
const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
    "added_tokens": [{"id": 2, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}}"#;

const TWICE: &str = "{{ messages[0].content }}{{ messages[0].content }}";
const DATED: &str = "{% if strftime_now('%Y') == '1970' %}a{% else %}?{% endif %}";
const ROLES: &str = "{% for m in messages %}{{ m.role }} {{ m.content }}<e>{% endfor %}{% if add_generation_prompt %}a{% endif %}";

/// Returns a model with a template, on a pool whose threads take no jobs.
fn tokenizing(template: &str, longest: usize) -> Tokenizing {
    with_queue(template, longest, 0)
}

/// Returns a model with a template, on a pool with a queue of so many jobs.
fn with_queue(template: &str, longest: usize, queue: usize) -> Tokenizing {
    let files = Files {
        tokenizer: TOKENIZER.into(),
        templates: [("default".to_owned(), template.to_owned())].into(),
        config: None,
        ..Files::default()
    };
    let model = ModelSpec {
        names: vec!["*".to_owned()],
        tokens: ModelTokens::Local {
            model: Arc::new(Model::load(&files, None).unwrap()),
            timeout: Duration::from_secs(60),
        },
    };
    let limits = TokenizingLimits {
        longest,
        in_place: usize::MAX,
        queue,
        ..TokenizingLimits::default()
    };
    let spec = ModelsSpec {
        models: vec![model],
        limits,
    };
    Tokenizing::new(
        TokenizingPlan::new(None, spec).unwrap(),
        None,
        &TokensMetrics::new(&crate::base::buckets::BucketBounds::default()),
    )
}

type Ids = Result<(TokensKind, Vec<u32>), crate::tokens::tokenize_request::TokensUnavailable>;

/// Returns the body of a chat with these messages.
fn body(messages: &[(&str, String)]) -> Bytes {
    let message = |(role, content): &(&str, String)| format!(r#"{{"role":"{role}","content":"{content}"}}"#);
    let messages: Vec<_> = messages.iter().map(message).collect();
    format!(r#"{{"messages":[{}]}}"#, messages.join(",")).into()
}

/// Calls a function with the request for a chat's tokens.
fn with_request<T>(body: &Bytes, ask: impl FnOnce(&TokenizeRequest<'_>) -> T) -> T {
    with_request_kept(body, true, ask)
}

fn with_request_kept<T>(body: &Bytes, is_kept: bool, ask: impl FnOnce(&TokenizeRequest<'_>) -> T) -> T {
    let endpoint = Endpoint::ChatCompletions;
    ask(&TokenizeRequest {
        peek: &inference_api::peek(endpoint, body).unwrap(),
        body,
        endpoint,
        headers: &HeaderMap::new(),
        sender: PromptSender::Unknown,
        seq: 1,
        limits: &RequestLimits {
            attempts: 1,
            body_bytes: usize::MAX,
            connect_timeout: SECOND,
            first_byte_timeout: SECOND,
            first_token_timeout: None,
            idle_timeout: SECOND,
            request_timeout: None,
        },
        is_kept,
    })
}

fn local(tokenizing: &Tokenizing) -> &Local {
    match tokenizing.source("m", TokenSource::Off) {
        Source::Local(local) => local,
        Source::As(_) => panic!("the model has a tokenizer"),
    }
}

/// Tokenizes a chat with these messages. No thread is needed, or none is free.
async fn tokenize_chat(tokenizing: &Tokenizing, messages: &[(&str, String)]) -> Ids {
    let body = body(messages);
    let result = with_request(&body, |request| {
        tokens(local(tokenizing), tokenizing, request)
            .now_or_never()
            .expect("no thread has the prompt")
    });
    result.map(|(kind, tokens)| (kind, tokens.ids.to_vec()))
}

/// Returns the comparisons of continued conversations, by their result.
fn checks(tokenizing: &Tokenizing) -> [bool; 2] {
    let mut registry = Registry::default();
    tokenizing.metrics.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    ["equal", "different"].map(|tokens| {
        let none = format!("conversation_checks_total{{tokens=\"{tokens}\"}} 0");
        !text.contains(&none)
    })
}

/// Tokenizes a chat whose only message is `words` times "a".
async fn tokenize_words(words: usize, longest: usize) -> Ids {
    tokenize_chat(&tokenizing(TWICE, longest), &[("user", "a ".repeat(words))]).await
}

#[tokio::test]
async fn a_long_body_of_a_known_conversation_stays_on_the_requests_thread() {
    let tokenizing = tokenizing(ROLES, 4 << 20);
    let mut messages = vec![("user", "a ".repeat(SHORT_BODY / 2 - 100))];
    let first = tokenize_chat(&tokenizing, &messages).await.unwrap().1;
    messages.extend([("assistant", "a ".repeat(1_000)), ("user", "a b".to_owned())]);
    let second = tokenize_chat(&tokenizing, &messages).await.unwrap().1;
    // The text for the answer is no token of the next turn.
    let known = first.len() - 1;
    assert_eq!(second[..known], first[..known]);
    // "assistant", its words, the added token, "user", "a", "b", the added token, "a".
    assert_eq!(second.len(), known + 1 + 1_000 + 1 + 1 + 2 + 1 + 1);
    messages[0].1.push('a');
    let other = tokenize_chat(&tokenizing, &messages).await;
    assert_eq!(other, Err(TokensKind::QueueFull.into()), "another conversation");
}

#[tokio::test]
async fn a_long_body_is_left_to_a_thread_with_its_rendering() {
    let result = tokenize_words(8, 4 << 20).await;
    assert_eq!(result, Ok((TokensKind::Local, vec![0; 16])));
    assert_eq!(
        tokenize_words(SHORT_BODY, 4 << 20).await,
        Err(TokensKind::QueueFull.into())
    );
}

#[tokio::test]
async fn a_short_body_of_many_messages_or_a_long_rendering_is_left_to_a_thread() {
    let turns = |count| {
        let turn = [("user", "a".to_owned()), ("assistant", "a".to_owned())];
        let mut messages = vec![turn; count].concat();
        messages.pop();
        messages
    };
    let many = turns(SHORT_CHAT / 2 + 1);
    let few = tokenize_chat(&tokenizing(ROLES, 4 << 20), &many[..SHORT_CHAT - 1]).await;
    assert!(few.is_ok());
    let many = tokenize_chat(&tokenizing(ROLES, 4 << 20), &many).await;
    assert_eq!(many, Err(TokensKind::QueueFull.into()));
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
    let costly = tokenize_chat(&with_queue(endless, 4 << 20, 0), &turns(1)).await;
    assert_eq!(costly, Err(TokensKind::QueueFull.into()));
}

#[tokio::test]
async fn a_lookup_is_neither_sampled_nor_kept() {
    let tokenizing = with_queue(ROLES, 4 << 20, 1);
    let body = body(&[("user", "a".to_owned())]);
    let lookup = with_request_kept(&body, false, |request| {
        tokens(local(&tokenizing), &tokenizing, request).now_or_never()
    });
    assert!(lookup.is_some_and(|tokens| tokens.is_ok()));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(checks(&tokenizing), [false; 2]);
    assert_eq!(tokenizing.cache.bytes(), 0);
}

#[tokio::test]
async fn a_chat_too_long_after_rendering_is_not_tokenized() {
    assert_eq!(tokenize_words(100, 300).await, Err(TokensKind::TooLong.into()));
}

#[tokio::test]
async fn a_long_rendering_behind_a_known_leading_message_is_left_to_a_thread() {
    let tokenizing = tokenizing(ROLES, 4 << 20);
    let lead = ("system", "a ".repeat(3_000));
    let first = [lead.clone(), ("user", "a".to_owned())];
    tokenize_chat(&tokenizing, &first).await.unwrap();
    // One long answer, or many short ones.
    for (answer, answers, is_left) in [(27_000, 1, false), (1, 3_000, true)] {
        let answer = ("assistant", "a ".repeat(answer));
        let mut messages = vec![lead.clone(), ("user", "b ".repeat(4_000))];
        (0..answers).for_each(|_| messages.extend([answer.clone(), ("user", "a".to_owned())]));
        assert!(body(&messages).len() > SHORT_BODY);
        match tokenize_chat(&tokenizing, &messages).await {
            Ok(_) => assert!(!is_left),
            left => assert_eq!((left, is_left), (Err(TokensKind::QueueFull.into()), true)),
        }
    }
}

#[tokio::test]
async fn a_sample_is_rendered_with_the_date_of_its_request() {
    let tokenizing = with_queue(DATED, 4 << 20, 1);
    let body = body(&[("user", "a".to_owned())]);
    let sampled = SampledTokens {
        ids: vec![0],
        now: SystemTime::UNIX_EPOCH,
    };
    with_request(&body, |request| {
        check::check_later(local(&tokenizing), &tokenizing, request, sampled);
    });
    let deadline = Instant::now() + 60 * SECOND;
    while checks(&tokenizing) == [false; 2] && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(checks(&tokenizing), [true, false]);
}

#[test]
fn requests_of_apis_that_sglang_converts_in_its_own_way_have_no_prompt() {
    let files = Files {
        tokenizer: TOKENIZER.into(),
        templates: [("default".to_owned(), TWICE.to_owned())].into(),
        ..Files::default()
    };
    let has_prompt = |engine, endpoint, body: &str| {
        let model = Model::load_for(engine, &files, None).unwrap();
        let peek = inference_api::peek(endpoint, body.as_bytes()).unwrap();
        PromptInput::of(&model, &peek).is_some()
    };
    for (endpoint, body, is_of_sglang) in [
        (Endpoint::Completions, r#"{"prompt":"a"}"#, true),
        (Endpoint::ChatCompletions, r#"{"messages":[]}"#, true),
        (Endpoint::Responses, r#"{"input":"a"}"#, false),
        (
            Endpoint::Messages,
            r#"{"messages":[{"role":"user","content":"a"}]}"#,
            false,
        ),
    ] {
        assert!(has_prompt(ChatEngine::Vllm, endpoint, body), "{body}");
        assert_eq!(
            has_prompt(ChatEngine::SgLang, endpoint, body),
            is_of_sglang,
            "{body}"
        );
    }
}
