//! Conversions of chats, with the values of SGLang's own code (0.5.23).

use super::*;
use crate::chat::EngineFields;

fn prepared(chat: &Chat<'_>, format: ContentFormat) -> Result<String, ChatError> {
    let facts = TemplateProperties {
        format,
        supports_developer: false,
        reads_content: true,
        refuses_inline_system: false,
        now: crate::clock_use::ClockUse::of(""),
    };
    let variables = variables(chat, facts)?;
    let mut out = String::new();
    let arguments = value::map(variables.extra);
    for value in [Value::from(variables.messages), variables.tools, arguments] {
        value::to_text(&mut out, &value).unwrap();
        out.push('\n');
    }
    Ok(out)
}

#[track_caller]
fn check(chat: &Chat<'_>, expected: [&str; 3]) {
    let prepared = prepared(chat, ContentFormat::String).unwrap();
    assert_eq!(prepared.trim_end().split('\n').collect::<Vec<_>>(), expected);
}

const QUESTION: &str = r#"[{"role":"user","content":"a","name":"n"}]"#;
const ASKED: &str = "[{'role': 'user', 'content': 'a'}]";

/// The output of `Tool.model_dump` of the wheel.
#[test]
fn tools_keep_the_clients_order_of_fields() {
    check(
        &Chat {
            messages: QUESTION,
            tools: Some(
                r#"[{"type":"function","function":{"name":"f","x":1,"description":"d","parameters":{"type":"object"}}},
                    {"function":{"parameters":{},"name":"g","strict":null},"defer_loading":true}]"#,
            ),
            ..Chat::default()
        },
        [
            ASKED,
            "[{'type': 'function', 'function': {'name': 'f', 'description': 'd', 'parameters': {'type': 'object'}}, 'defer_loading': None}, \
             {'type': 'function', 'function': {'parameters': {}, 'name': 'g', 'description': None, 'defer_loading': True}, 'defer_loading': True}]",
            "{}",
        ],
    );
}

#[test]
fn a_choice_of_tools_leaves_those_that_may_be_called() {
    let tools = |choice| {
        let chat = Chat {
            messages: QUESTION,
            tools: Some(r#"[{"function":{"name":"f"}},{"function":{"name":"g"}}]"#),
            of_engines: EngineFields {
                tool_choice: choice,
                ..EngineFields::default()
            },
            ..Chat::default()
        };
        let prepared = prepared(&chat, ContentFormat::String).unwrap();
        let tools = prepared.lines().nth(1).unwrap().to_owned();
        ["'f'", "'g'"].map(|name| tools.contains(name))
    };
    assert_eq!(tools(None), [true; 2]);
    assert_eq!(tools(Some(r#""required""#)), [true; 2]);
    assert_eq!(tools(Some(r#""none""#)), [false; 2]);
    assert_eq!(
        tools(Some(r#"{"type":"function","function":{"name":"g"}}"#)),
        [false, true]
    );
}

#[test]
fn a_final_answer_becomes_a_question() {
    let messages =
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":"b","reasoning_content":"r"}]"#;
    let chat = Chat {
        messages,
        ..Chat::default()
    };
    check(
        &chat,
        [
            "[{'role': 'user', 'content': 'a'}, {'role': 'user', 'content': 'b'}]",
            "None",
            "{}",
        ],
    );
    let continued = Chat {
        continue_final_message: Some("true"),
        ..chat
    };
    assert!(prepared(&continued, ContentFormat::String).is_err());
    // There is no answer to continue.
    let question = Chat {
        messages: QUESTION,
        ..continued
    };
    check(&question, [ASKED, "None", "{}"]);
}

#[test]
fn texts_of_a_content_are_joined_by_spaces_and_a_text_stays_one() {
    let messages = r#"[{"role":"System","content":"s"},
        {"role":"tool","tool_call_id":"i","content":[{"type":"text","text":"a"},{"type":"text","text":""}]},
        {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]"#;
    let chat = Chat {
        messages,
        ..Chat::default()
    };
    check(
        &chat,
        [
            "[{'role': 'system', 'content': 's'}, {'role': 'tool', 'content': 'a ', 'tool_call_id': 'i'}, {'role': 'user', 'content': 'a b'}]",
            "None",
            "{}",
        ],
    );
    let parts = prepared(&chat, ContentFormat::OpenAi).unwrap();
    assert_eq!(
        parts.lines().next(),
        Some(
            "[{'role': 'system', 'content': 's'}, {'role': 'tool', 'tool_call_id': 'i', 'content': 'a '}, \
             {'role': 'user', 'content': [{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]}]"
        )
    );
}

#[test]
fn an_effort_sets_both_switches() {
    let arguments = |chat: Chat<'_>| {
        let chat = Chat {
            messages: QUESTION,
            ..chat
        };
        let prepared = prepared(&chat, ContentFormat::String).unwrap();
        prepared.lines().nth(2).unwrap().to_owned()
    };
    assert_eq!(
        arguments(Chat {
            reasoning_effort: Some(r#""low""#),
            chat_template_kwargs: Some(r#"{"thinking":false}"#),
            ..Chat::default()
        }),
        "{'reasoning_effort': 'low', 'thinking': False, 'enable_thinking': True}"
    );
    assert_eq!(
        arguments(Chat {
            of_engines: EngineFields {
                reasoning: Some(r#"{"effort":"none","enabled":true}"#),
                ..EngineFields::default()
            },
            reasoning_effort: Some(r#""low""#),
            ..Chat::default()
        }),
        "{'reasoning_effort': 'none', 'thinking': False, 'enable_thinking': False}"
    );
    assert_eq!(
        arguments(Chat {
            of_engines: EngineFields {
                reasoning: Some(r#"{"enabled":"on"}"#),
                ..EngineFields::default()
            },
            ..Chat::default()
        }),
        "{'thinking': True, 'enable_thinking': True}"
    );
    assert_eq!(
        arguments(Chat {
            of_engines: EngineFields {
                reasoning: Some(r#"{"effort":0.5}"#),
                ..EngineFields::default()
            },
            ..Chat::default()
        }),
        "{'reasoning_effort': 0.5, 'thinking': True, 'enable_thinking': True}"
    );
}

#[test]
fn fields_that_its_chats_do_not_have_are_skipped() {
    check(
        &Chat {
            messages: r#"[{"role":"assistant","tool_calls":[{"id":"i","function":{"arguments":"{\"x\":1}","name":"f"}}],"reasoning":"r"},
                {"role":"user","content":"a"}]"#,
            documents: Some("[1]"),
            add_generation_prompt: Some("false"),
            of_engines: EngineFields {
                add_special_tokens: Some("true"),
                ..EngineFields::default()
            },
            ..Chat::default()
        },
        [
            "[{'role': 'assistant', 'content': '', 'tool_calls': [{'id': 'i', 'index': None, 'type': 'function', 'function': {'name': 'f', 'arguments': {'x': 1}}}]}, \
             {'role': 'user', 'content': 'a'}]",
            "None",
            "{}",
        ],
    );
}
