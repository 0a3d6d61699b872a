//! Continued conversations have the tokens of their whole renderings, whatever the template and the messages.

use std::ops::Range;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use serde_json::{Value, json};
use tokenize::{Budget, CacheLimits, Chat, Files, Model, TokenizationCache, Tokens};

use crate::shapes;
use crate::templates::{TEMPLATES, Template};

mod arguments;
mod leads;

const SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TOOLS: &str = r#"[{"type":"function","function":{"name":"lookup","description":"of anything","parameters":{"type":"object","properties":{"key":{"type":"string"}}}}}]"#;

/// Returns a tokenizer with the added tokens of a template.
fn files(template: &Template) -> Files {
    let mut files = shapes::byte_level_split(&[SPLIT]);
    let mut tokenizer: Value = serde_json::from_slice(&files.tokenizer).unwrap();
    let added = tokenizer["added_tokens"].as_array_mut().unwrap();
    let mut next = added
        .iter()
        .filter_map(|token| token["id"].as_u64())
        .max()
        .unwrap()
        + 1;
    for content in template.tokens {
        if added.iter().all(|token| token["content"] != *content) {
            added.push(json!({
                "id": next, "content": content, "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false,
            }));
            next += 1;
        }
    }
    files.tokenizer = tokenizer.to_string().into_bytes();
    files
        .templates
        .insert("default".to_owned(), template.source.to_owned());
    files
}

/// Models by template: loading one probes it.
static MODELS: LazyLock<Vec<(&'static Template, Model)>> = LazyLock::new(|| {
    let model = |template| (template, Model::load(&files(template), None).unwrap());
    TEMPLATES.iter().map(model).collect()
});

fn cache() -> TokenizationCache {
    TokenizationCache::with_conversations(CacheLimits {
        pieces: 1 << 20,
        conversations: 1 << 20,
    })
}

/// A request's messages in JSON, with their positions.
fn written(messages: &[Value]) -> (String, Vec<Range<usize>>) {
    let mut text = String::from("[");
    let mut positions = Vec::new();
    for message in messages {
        if text.len() > 1 {
            text.push_str(", ");
        }
        let start = text.len();
        text.push_str(&message.to_string());
        positions.push(start..text.len());
    }
    text.push(']');
    (text, positions)
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

fn continued(model: &Model, chat: &Chat<'_>, cache: &TokenizationCache) -> Option<Tokens> {
    let prepared = model.prepare_chat(chat, now(), cache).ok()?;
    let expected = prepared.text_bytes();
    let tokens = model.complete(prepared, cache, &mut Budget::unlimited()).unwrap();
    let whole = model.render(chat, now()).map(|whole| whole.as_str().len());
    assert!(whole.is_err() || whole.unwrap() == expected, "length of the text");
    Some(tokens)
}

fn whole(model: &Model, chat: &Chat<'_>) -> Option<Vec<u32>> {
    let nothing = TokenizationCache::new(0);
    let rendered = model.render(chat, now()).ok()?;
    let prepared = model.prepare(rendered, &nothing);
    Some(
        model
            .complete(prepared, &nothing, &mut Budget::unlimited())
            .unwrap()
            .ids
            .to_vec(),
    )
}

/// Sends each request of a conversation, that is, every beginning of it that a client would send. Returns the number of
/// continued ones.
#[track_caller]
fn play(template: &Template, model: &Model, cache: &TokenizationCache, conversation: &Conversation) -> usize {
    let mut count = 0;
    for end in 1..=conversation.messages.len() {
        let last = &conversation.messages[end - 1]["role"];
        let next = conversation.messages.get(end).map(|message| &message["role"]);
        if last != "user" && (last != "tool" || next.is_some_and(|role| role == "tool")) {
            continue;
        }
        let (text, positions) = written(&conversation.messages[..end]);
        let chat = Chat {
            messages: &text,
            tools: conversation.tools,
            chat_template_kwargs: conversation.arguments,
            positions: &positions,
            ..Chat::default()
        };
        if let Some(expected) = whole(model, &chat) {
            let tokens = continued(model, &chat, cache).expect("the template renders it");
            assert_eq!(tokens.ids.to_vec(), expected, "{}: {text}", template.name);
            count += usize::from(tokens.is_continued);
        }
    }
    count
}

#[derive(Debug, Clone)]
struct Conversation {
    messages: Vec<Value>,
    tools: Option<&'static str>,
    arguments: Option<&'static str>,
}

/// Returns texts, some of which templates look for.
fn texts() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "</think>",
        "<think>",
        "<think>\nso\n</think>\n\n",
        "<|im_end|>",
        "<|im_end|>\n",
        "<|eot_id|>",
        "<tool_response>",
        "</tool_response>",
        "<｜Assistant｜>",
        "[/INST]",
        "<|end|>",
        "<|channel|>final<|message|>",
        "\n",
        "  ",
        "{{ x }}",
        "</tools>",
        "\u{e9}",
        "",
    ]);
    let piece = prop_oneof![
        4 => "[ a-z]{0,30}",
        1 => "\\PC{0,8}",
        1 => known.prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

fn contents() -> impl Strategy<Value = Value> {
    prop_oneof![
        5 => texts().prop_map(Value::from),
        1 => prop::collection::vec(texts(), 1..3).prop_map(|texts| {
            texts.into_iter().map(|text| json!({"type": "text", "text": text})).collect()
        }),
    ]
}

/// Returns the messages of one question: the question itself, calls with their results, and the answer.
fn rounds() -> impl Strategy<Value = Vec<Value>> {
    let step = (
        texts(),
        prop::collection::vec((texts(), texts()), 1..3),
        prop::option::weighted(0.1, texts()),
    );
    let steps = prop_oneof![3 => Just(Vec::new()), 2 => prop::collection::vec(step, 1..3)];
    (contents(), steps, contents(), prop::option::weighted(0.15, texts()), any::<bool>()).prop_map(
        |(question, steps, answer, reasoning, is_null)| {
            let mut messages = vec![json!({"role": "user", "content": question})];
            for (said, calls, thought) in steps {
                let ids = ["call0000a", "call0000b"];
                let made = calls.iter().zip(ids).map(|((argument, _), id)| {
                    json!({"id": id, "type": "function", "function": {"name": "lookup", "arguments": json!({"key": argument}).to_string()}})
                });
                let content = if is_null { Value::Null } else { said.into() };
                let made: Vec<Value> = made.collect();
                let mut message = json!({"role": "assistant", "content": content, "tool_calls": made});
                if let Some(thought) = thought {
                    message["reasoning"] = thought.into();
                }
                messages.push(message);
                for ((_, result), id) in calls.into_iter().zip(ids) {
                    messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
                }
            }
            let mut message = json!({"role": "assistant", "content": answer});
            if let Some(reasoning) = reasoning {
                message["reasoning_content"] = reasoning.into();
            }
            messages.push(message);
            messages
        },
    )
}

fn conversations() -> impl Strategy<Value = Conversation> {
    let lead = prop::option::of((prop::sample::select(vec!["system", "developer"]), texts()));
    let arguments = prop::option::weighted(
        0.3,
        prop::sample::select(vec![r#"{"enable_thinking":false}"#, r#"{"x":[1]}"#]),
    );
    (
        lead,
        prop::collection::vec(rounds(), 1..4),
        any::<bool>(),
        arguments,
    )
        .prop_map(|(lead, rounds, has_tools, arguments)| {
            let long = "A long text of many words before all others. ".repeat(100);
            let mut messages = Vec::new();
            match lead {
                Some((role, text)) => messages.push(json!({"role": role, "content": long + &text})),
                None => messages.extend([
                    json!({"role": "user", "content": long}),
                    json!({"role": "assistant", "content": "Yes."}),
                ]),
            }
            messages.extend(rounds.concat());
            Conversation {
                messages,
                tools: has_tools.then_some(TOOLS),
                arguments,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// Several conversations with one cache, the last of which goes on otherwise after its leading message.
    #[test]
    fn tokens_of_continued_conversations_are_those_of_whole_renderings(
        conversation in conversations(), other in conversations(),
    ) {
        for (template, model) in &*MODELS {
            let cache = cache();
            let mut branched = other.clone();
            branched.messages[0] = conversation.messages[0].clone();
            for conversation in [&conversation, &other, &branched] {
                play(template, model, &cache, conversation);
            }
        }
    }
}

/// Returns a conversation that every template can render.
fn simple(is_with_tools: bool) -> Conversation {
    let long = "A long text of many words before all others. ".repeat(100);
    let text = |role: &str, content: &str| json!({"role": role, "content": content});
    let mut messages = vec![
        text("user", &long),
        text("assistant", "Yes."),
        text("user", "Why?"),
    ];
    if is_with_tools {
        messages.push(json!({"role": "assistant", "content": "", "tool_calls": [
            {"id": "call0000a", "type": "function", "function": {"name": "lookup", "arguments": "{\"key\":\"a\"}"}}]}));
        messages.push(json!({"role": "tool", "tool_call_id": "call0000a", "content": "found"}));
    }
    messages.extend([
        text("assistant", "So."),
        text("user", "And?"),
        text("assistant", "No."),
        text("user", "Ah."),
    ]);
    Conversation {
        messages,
        tools: is_with_tools.then_some(TOOLS),
        arguments: None,
    }
}

#[test]
fn stable_templates_are_continued_and_others_are_not() {
    for (template, model) in &*MODELS {
        let count = play(template, model, &cache(), &simple(false));
        assert_eq!(count, template.continued, "{}", template.name);
        let count = play(template, model, &cache(), &simple(true));
        assert_eq!(
            count, template.continued_with_tools,
            "{} with tools",
            template.name
        );
    }
}

#[test]
fn contents_that_begin_and_end_with_texts_of_the_template_have_the_tokens_of_whole_renderings() {
    for (template, model) in &*MODELS {
        let mut conversation = simple(false);
        for at in [2, 4, 6] {
            let mut one = conversation.clone();
            one.messages[at]["content"] = "<tool_response>\nq\n</tool_response>".into();
            play(template, model, &cache(), &one);
        }
        conversation.messages[0]["content"] = "<tool_response>\nq\n</tool_response>".into();
        play(template, model, &cache(), &conversation);
    }
}

#[test]
fn a_leading_message_is_known_to_other_conversations() {
    for (template, model) in MODELS
        .iter()
        .filter(|(template, _)| template.continued_with_tools == 4)
    {
        let cache = cache();
        let mut conversation = simple(false);
        let long = conversation.messages[0]["content"].clone();
        conversation.messages[0] = json!({"role": "system", "content": long});
        conversation.messages.truncate(1);
        for (question, expected) in [("a", 0), ("b", 1)] {
            conversation
                .messages
                .push(json!({"role": "user", "content": question}));
            assert_eq!(
                play(template, model, &cache, &conversation),
                expected,
                "{}",
                template.name
            );
            conversation.messages.pop();
        }
    }
}

#[test]
fn a_difference_ends_the_continuation_for_its_template() {
    let model = Model::load(&files(&TEMPLATES[0]), None).unwrap();
    let cache = cache();
    assert_eq!(play(&TEMPLATES[0], &model, &cache, &simple(false)), 3);
    let (text, positions) = written(&simple(false).messages);
    let chat = Chat {
        messages: &text,
        positions: &positions,
        ..Chat::default()
    };
    let mut tokens = whole(&model, &chat).unwrap();
    let check = |tokens: &[u32]| {
        model
            .check_chat(&chat, now(), tokens, &cache, &mut Budget::unlimited())
            .unwrap()
    };
    assert_eq!(check(&tokens), Some(true));
    assert!(model.continue_chat(&chat, now(), usize::MAX, &cache).is_some());
    tokens.pop();
    assert_eq!(check(&tokens), Some(false));
    assert!(model.continue_chat(&chat, now(), usize::MAX, &cache).is_none());
}

#[test]
fn the_memory_of_conversations_stays_within_its_limit() {
    let (template, model) = &MODELS[0];
    let limits = CacheLimits {
        pieces: 0,
        conversations: 80_000,
    };
    let cache = TokenizationCache::with_conversations(limits);
    for number in 0..100 {
        let mut conversation = simple(false);
        conversation.messages[1]["content"] = format!("{number}").into();
        play(template, model, &cache, &conversation);
        assert!(
            cache.conversation_bytes() <= 88_000,
            "{}",
            cache.conversation_bytes()
        );
    }
    assert!(cache.conversation_bytes() > 40_000);
    cache.set_limits(CacheLimits {
        conversations: 0,
        ..limits
    });
    assert_eq!(cache.conversation_bytes(), 0);
    assert_eq!(play(template, model, &cache, &simple(false)), 0);
}
