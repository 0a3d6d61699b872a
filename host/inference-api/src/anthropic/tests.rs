//! Conversions compared with vLLM's, and refused ones.

use serde_json::Value;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::*;
use crate::fields::ReadBody;

/// Requests converted by vLLM's own code, recorded by `tests/engines/vllm_messages.py`.
const RECORDED: &str = include_str!("../../tests/fixtures/messages-vllm-0.32.0.jsonl");

#[derive(Deserialize)]
struct RecordedCase<'a> {
    #[serde(borrow)]
    body: &'a RawValue,
    merges_system: bool,
    disabled_thinking: &'a str,
    chat: Option<Value>,
}

fn prompt(body: &str) -> MessagesPrompt<'_> {
    let fields = ReadBody::read(body.as_bytes()).unwrap().fields;
    MessagesPrompt::of(&fields).unwrap()
}

fn rules(case: &RecordedCase<'_>) -> TemplateRules {
    TemplateRules {
        merges_system: case.merges_system,
        disabled_thinking: match case.disabled_thinking {
            "none" => DisabledThinking::None,
            _ => DisabledThinking::Low,
        },
    }
}

/// Parses JSON with arguments of calls as values, and objects as lists of members: their order counts in templates.
fn ordered(json: &str) -> Value {
    fn members(raw: &RawValue) -> Value {
        let text = raw.get();
        if text.starts_with('{') {
            let mut list = Vec::new();
            // A map loses the order of an object, a visitor keeps it.
            let Ordered(entries) = serde_json::from_str(text).unwrap();
            for (name, value) in entries {
                let value = match (&*name, value.get()) {
                    ("arguments", text) if text.starts_with('"') => {
                        ordered(&serde_json::from_str::<String>(text).unwrap())
                    }
                    _ => members(value),
                };
                list.push(Value::from(vec![Value::from(name), value]));
            }
            return list.into();
        }
        if text.starts_with('[') {
            let items: Vec<&RawValue> = serde_json::from_str(text).unwrap();
            return items.into_iter().map(members).collect();
        }
        serde_json::from_str(text).unwrap()
    }
    members(serde_json::from_str(json).unwrap())
}

struct Ordered<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Ordered<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OrderedVisitor;
        impl<'de> serde::de::Visitor<'de> for OrderedVisitor {
            type Value = Ordered<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Ordered(entries))
            }
        }
        deserializer.deserialize_map(OrderedVisitor)
    }
}

/// Returns the raw members of a recorded chat.
fn recorded(line: &str, name: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct RecordedLine<'a> {
        #[serde(borrow)]
        chat: Ordered<'a>,
    }
    let line: RecordedLine<'_> = serde_json::from_str(line).unwrap();
    let found = line.chat.0.into_iter().find(|(member, _)| member == name);
    found
        .map(|(_, value)| value.get().to_owned())
        .filter(|text| text != "null")
}

#[test]
fn a_chat_is_the_one_that_the_engine_makes() {
    let mut chats = 0;
    for line in RECORDED.lines() {
        let case: RecordedCase<'_> = serde_json::from_str(line).unwrap();
        let ours = prompt(case.body.get()).chat(Some(rules(&case)));
        let Some(ours) = ours else {
            assert!(case.chat.is_none(), "no chat is made of {line}");
            continue;
        };
        assert!(case.chat.is_some(), "the engine refuses {line}");
        let check = |name: &str, ours: Option<&str>| {
            let theirs = recorded(line, name);
            assert_eq!(
                ours.map(ordered),
                theirs.as_deref().map(ordered),
                "{name} of {line}"
            );
        };
        check("messages", Some(&ours.messages));
        check("tools", ours.tools.as_deref());
        check("reasoning_effort", ours.reasoning_effort);
        check("chat_template_kwargs", ours.chat_template_kwargs);
        chats += 1;
    }
    assert!(chats >= 45, "{chats} chats");
}

#[test]
fn a_chat_that_depends_on_the_template_needs_its_rules() {
    let check = |body: &str, is_known: bool| {
        assert_eq!(prompt(body).chat(None).is_some(), is_known, "{body}");
    };
    check(
        r#"{"messages":[{"role":"user","content":"a"}],"system":"s"}"#,
        true,
    );
    check(
        r#"{"messages":[{"role":"user","content":"a"},{"role":"system","content":"b"}]}"#,
        false,
    );
    check(
        r#"{"messages":[{"role":"user","content":"a"}],"thinking":{"type":"disabled"}}"#,
        false,
    );
    check(
        r#"{"messages":[{"role":"user","content":"a"}],"thinking":{"type":"adaptive"}}"#,
        true,
    );
}

/// The engine would name the call by its clock, print a list as Python does, or resolve the tools of a conversation.
#[test]
fn messages_only_the_engine_can_render_have_no_chat() {
    let rules = TemplateRules {
        merges_system: false,
        disabled_thinking: DisabledThinking::None,
    };
    for messages in [
        r#"[{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}}]}]"#,
        r#"[{"role":"assistant","content":[{"type":"tool_result","tool_use_id":"t","content":[]}]}]"#,
        r#"[{"role":"system","content":[{"type":"tool_removal","tool":{"type":"tool_reference","name":"f"}}]}]"#,
        r#"{"role":"user"}"#,
        r#"[{"role":"user","content":"a","content":"b"}]"#,
    ] {
        let body = format!(r#"{{"messages":{messages}}}"#);
        assert_eq!(prompt(&body).chat(Some(rules)), None, "{messages}");
    }
}

proptest::proptest! {
    /// For any texts, the chat is valid JSON with the texts in their order.
    #[test]
    fn message_texts_are_kept(texts in proptest::collection::vec("[a-é\"\\\\\n\u{1}👩 ]{1,8}", 1..5), split in proptest::bool::ANY) {
        let block = |text: &String| serde_json::json!({"type": "text", "text": text});
        let content: Vec<Value> = texts.iter().map(block).collect();
        let body = if split {
            serde_json::json!({"messages": [{"role": "user", "content": content}]})
        } else {
            serde_json::json!({"messages": [{"role": "user", "content": texts.concat()}], "system": content})
        };
        let body = body.to_string();
        let chat = prompt(&body).chat(None).unwrap();
        let messages: Value = serde_json::from_str(&chat.messages).unwrap();
        if !split {
            proptest::prop_assert_eq!(&messages[0]["content"], &Value::from(texts.concat()));
            proptest::prop_assert_eq!(&messages[1]["content"], &Value::from(texts.concat()));
        } else if texts.len() == 1 {
            proptest::prop_assert_eq!(&messages[0]["content"], &Value::from(texts[0].clone()));
        } else {
            proptest::prop_assert_eq!(&messages[0]["content"], &Value::from(content));
        }
    }
}
