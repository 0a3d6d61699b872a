//! Conversations: what is rendered, what is refused, and how much of a conversation the cache serves.

use std::time::SystemTime;

use tokenize::{Budget, Chat, ChatEngine, ChatError, EngineFields, Files, Model, TokenizationCache};

use crate::shapes;

fn render(files: &Files, messages: &str) -> Result<String, ChatError> {
    let chat = Chat {
        messages,
        ..Chat::default()
    };
    let model = Model::load(files, None).unwrap();
    let rendered = model.render(&chat, SystemTime::UNIX_EPOCH)?;
    Ok(rendered.as_str().to_owned())
}

fn with_template(template: &str) -> Files {
    let mut files = shapes::byte_level();
    files.templates.insert("default".to_owned(), template.to_owned());
    files
}

#[test]
fn three_families_of_templates_are_rendered() {
    let messages = r#"[{"role":"user","content":" hi "},{"role":"assistant","content":"yes"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]"#;
    assert_eq!(
        render(&with_template(shapes::CHATML), messages).unwrap(),
        "<|im_start|>user\n hi <|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(
        render(&with_template(shapes::HEADERS), messages).unwrap(),
        "<s><|im_start|>user<|im_end|>\n\n hi </s><|im_start|>assistant<|im_end|>\n\nyes</s><|im_start|>user<|im_end|>\n\nab</s><|im_start|>assistant<|im_end|>\n\n"
    );
    assert_eq!(
        render(&with_template(shapes::INSTRUCT), messages).unwrap(),
        "<s>[INST]  hi  [/INST] yes</s>[INST] a\nb [/INST]"
    );
}

#[test]
fn messages_only_the_engine_can_render_are_refused() {
    for messages in [
        r#"[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/y.png"}}]}]"#,
        r#"[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]"#,
        r#"[{"role":"user","content":5}]"#,
        r#"[{"content":"nobody"}]"#,
        "[]",
        "{}",
    ] {
        let refused = render(&shapes::byte_level(), messages);
        assert!(
            matches!(refused, Err(ChatError::Unsupported(_))),
            "{messages}: {refused:?}"
        );
    }
    let refused = render(
        &with_template(shapes::INSTRUCT),
        r#"[{"role":"user","content":"a"},{"role":"user","content":"b"}]"#,
    );
    assert!(matches!(refused, Err(ChatError::Template(_))), "{refused:?}");
}

#[test]
fn a_model_without_a_template_has_no_chats_but_texts() {
    let mut files = shapes::byte_level();
    files.config = None;
    let model = Model::load(&files, None).unwrap();
    assert!(!model.has_template());
    assert!(render(&files, r#"[{"role":"user","content":"a"}]"#).is_err());
}

#[test]
fn chats_with_tools_have_a_template_of_their_own() {
    let config = r#"{"chat_template":[{"name":"default","template":"plain"},{"name":"tool_use","template":"{{ tools[0].function.name }}"}]}"#;
    let files = Files {
        config: Some(config.into()),
        ..shapes::byte_level()
    };
    let model = Model::load(&files, None).unwrap();
    let chat = |tools| Chat {
        messages: r#"[{"role":"user","content":"a"}]"#,
        tools,
        ..Chat::default()
    };
    let text = |tools| {
        model
            .render(&chat(tools), SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_str()
            .to_owned()
    };
    assert_eq!(text(None), "plain");
    assert_eq!(text(Some("null")), "plain");
    assert_eq!(
        text(Some(r#"[{"type":"function","function":{"name":"f"}}]"#)),
        "f"
    );
}

#[test]
fn the_template_of_a_processor_is_for_chats_without_tools() {
    let files = Files {
        config: Some(r#"{"chat_template":"of the tokenizer"}"#.into()),
        processor_template: Some(r#"{"chat_template":"of the processor"}"#.into()),
        ..shapes::byte_level()
    };
    let render = |files: &Files, tools| {
        let chat = Chat {
            messages: r#"[{"role":"user","content":"a"}]"#,
            tools,
            ..Chat::default()
        };
        let model = Model::load(files, None).unwrap();
        let rendered = model.render(&chat, SystemTime::UNIX_EPOCH).unwrap();
        rendered.as_str().to_owned()
    };
    let tools = Some(r#"[{"type":"function","function":{"name":"f"}}]"#);
    assert_eq!(render(&files, None), "of the processor");
    assert_eq!(render(&files, tools), "of the tokenizer");
    let alone = Files {
        config: None,
        ..files
    };
    assert_eq!(render(&alone, None), "of the processor");
}

/// Renders a chat as an engine does.
fn render_for(engine: ChatEngine, template: &str, chat: &Chat<'_>) -> String {
    let model = Model::load_for(engine, &with_template(template), None).unwrap();
    let rendered = model.render(chat, SystemTime::UNIX_EPOCH).unwrap();
    rendered.as_str().to_owned()
}

#[test]
fn chats_of_sglang_are_converted_in_its_own_way() {
    let chat = Chat {
        messages: r#"[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]"#,
        tools: Some(r#"[{"type":"function","function":{"description":"d","name":"f"}}]"#),
        reasoning_effort: Some("\"low\""),
        add_generation_prompt: Some("false"),
        ..Chat::default()
    };
    let template = "{{ messages[-1].role }} {{ tools | tojson }} {{ thinking }} {{ add_generation_prompt }}";
    let render = |engine, chat| render_for(engine, template, chat);
    assert_eq!(
        render(ChatEngine::Vllm, &chat),
        r#"assistant [{"type": "function", "function": {"name": "f", "description": "d", "parameters": null}}]  False"#
    );
    assert_eq!(
        render(ChatEngine::SgLang, &chat),
        r#"user [{"type": "function", "function": {"description": "d", "name": "f", "parameters": null}, "defer_loading": null}] True True"#
    );
    let no_call = Chat {
        of_engines: EngineFields {
            tool_choice: Some("\"none\""),
            ..EngineFields::default()
        },
        ..chat
    };
    assert_eq!(
        render(ChatEngine::Vllm, &no_call),
        render(ChatEngine::Vllm, &chat)
    );
    assert_eq!(render(ChatEngine::SgLang, &no_call), "user null True True");
}

#[test]
fn a_template_that_refuses_the_tools_of_sglang_has_their_functions() {
    let chat = Chat {
        messages: r#"[{"role":"user","content":"a"}]"#,
        tools: Some(r#"[{"function":{"name":"f"}}]"#),
        ..Chat::default()
    };
    let template = "{{ tools[0].name + ':' }}";
    assert_eq!(render_for(ChatEngine::SgLang, template, &chat), "f:");
}

#[test]
fn documents_of_the_arguments_are_rendered_unless_the_request_has_its_own() {
    let model = Model::load(&with_template("{{ documents }}"), None).unwrap();
    let text = |documents, chat_template_kwargs| {
        let chat = Chat {
            messages: r#"[{"role":"user","content":"a"}]"#,
            documents,
            chat_template_kwargs,
            ..Chat::default()
        };
        let rendered = model.render(&chat, SystemTime::UNIX_EPOCH).unwrap();
        rendered.as_str().to_owned()
    };
    let arguments = Some(r#"{"documents":["b"]}"#);
    assert_eq!(text(None, None), "None");
    assert_eq!(text(None, arguments), "['b']");
    assert_eq!(text(Some("null"), arguments), "['b']");
    assert_eq!(text(Some(r#"["c"]"#), arguments), "['c']");
}

#[test]
fn arguments_that_only_python_reads_are_refused_and_others_are_empty() {
    let template = with_template("{{ messages[0].tool_calls[0].function.arguments }}");
    let call = |arguments: &str| {
        let arguments = serde_json::Value::from(arguments);
        let messages = format!(
            r#"[{{"role":"assistant","tool_calls":[{{"function":{{"name":"f","arguments":{arguments}}}}}]}}]"#
        );
        render(&template, &messages)
    };
    for (arguments, expected) in [("{", "{}"), ("[1]", "{}"), (r#"{"a":1e22}"#, "{'a': 1e+22}")] {
        assert_eq!(call(arguments).unwrap(), expected, "{arguments}");
    }
    for arguments in [r#"{"a":NaN}"#, r#"{"a":123456789012345678901}"#, r#"{"a":1e999}"#] {
        assert!(
            matches!(call(arguments), Err(ChatError::Unsupported(_))),
            "{arguments}"
        );
    }
}

/// Ten turns after a system prompt of some length, as agents have. Each turn's prompt is the whole conversation.
/// Without the other conversation the system prompt would be new once, and the share lower.
#[test]
fn nine_tenths_of_a_conversation_come_from_the_cache_where_another_began_with_its_system_prompt() {
    let model = Model::load(&with_template(shapes::CHATML), None).unwrap();
    let cache = TokenizationCache::new(1 << 20);
    let tokens = |messages: &[serde_json::Value]| {
        let text = serde_json::Value::from(messages).to_string();
        let chat = Chat {
            messages: &text,
            ..Chat::default()
        };
        let rendered = model.render(&chat, SystemTime::UNIX_EPOCH).unwrap();
        model
            .complete(model.prepare(rendered, &cache), &cache, &mut Budget::unlimited())
            .unwrap()
    };
    let system = "You are one of the many people who can help with this. ".repeat(60);
    let mut messages = vec![serde_json::json!({"role": "system", "content": system})];
    // Somebody else's conversation began the same way.
    let others = tokens(&messages);
    assert_eq!(others.cached, 0);
    let (mut all, mut cached, mut could) = (0, 0, 0);
    let mut before = others.ids.len();
    for turn in 0..10 {
        let question = format!("Question {turn}: how many of these words could be made? ").repeat(3);
        messages.push(serde_json::json!({"role": "user", "content": question}));
        let tokens = tokens(&messages);
        all += tokens.ids.len();
        cached += tokens.cached;
        could += before;
        before = tokens.ids.len();
        let answer = format!("Answer {turn}: as many as there are in the long list. ").repeat(3);
        messages.push(serde_json::json!({"role": "assistant", "content": answer}));
    }
    println!("{cached} of {all} tokens from the cache; {could} stood in the turn before");
    assert!(cached * 10 >= all * 9, "{cached} of {all}");
    assert!(
        cached * 100 >= could * 99,
        "{cached} of {could} that stood in the turn before"
    );
}
