//! Tests of joined texts.

use std::time::SystemTime;

use super::*;
use crate::files::Files;
use crate::model::Model;

const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}}"#;
const CHATML: &str = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|assistant|>{% endif %}";

fn model(template: &str) -> Model {
    let files = Files {
        tokenizer: TOKENIZER.into(),
        templates: [("default".to_owned(), template.to_owned())].into(),
        config: None,
        ..Files::default()
    };
    Model::load(&files, None).unwrap()
}

fn chat(messages: &str) -> Chat<'_> {
    Chat {
        messages,
        ..Chat::default()
    }
}

/// Checks whether a chat is joined, and that its text is then the rendering.
#[track_caller]
fn check(model: &Model, chat: &Chat<'_>, is_joined: bool) {
    let joined = model.joined().and_then(|joined| joined.text(chat));
    assert_eq!(joined.is_some(), is_joined, "{joined:?}");
    if let Some(joined) = joined {
        assert_eq!(
            joined,
            model.render(chat, SystemTime::UNIX_EPOCH).unwrap().as_str()
        );
    }
}

#[test]
fn chats_of_texts_in_turns_are_joined() {
    let model = model(CHATML);
    for messages in [
        r#"[{"role":"user","content":"a \"b\"\nc"}]"#,
        r#"[{"role":"system","content":"s"},{"role":"user","content":"a"}]"#,
        r#"[{"content":"a","role":"user"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]"#,
    ] {
        check(&model, &chat(messages), true);
    }
    for messages in [
        "[]",
        r#"[{"role":"user","content":" a"}]"#,
        r#"[{"role":"user","content":"a\n"}]"#,
        r#"[{"role":"user","content":""}]"#,
        r#"[{"role":"system","content":"x-anthropic-billing-header: 1\nb"},{"role":"user","content":"a"}]"#,
        r#"[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"user","content":"c"}]"#,
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]"#,
        r#"[{"role":"developer","content":"a"}]"#,
        r#"[{"role":"user","content":[{"type":"text","text":"a"}]}]"#,
    ] {
        check(&model, &chat(messages), false);
    }
    let question = r#"[{"role":"user","content":"a"}]"#;
    for other in [
        Chat {
            tools: Some("[]"),
            ..chat(question)
        },
        Chat {
            add_generation_prompt: Some("false"),
            ..chat(question)
        },
        Chat {
            chat_template_kwargs: Some("{}"),
            ..chat(question)
        },
    ] {
        check(&model, &other, false);
    }
    assert!(model.frames().turn_off("default"));
    check(&model, &chat(question), false);
}

#[test]
fn contents_that_change_the_rendering_are_rendered() {
    let drops = model(
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content.split('</think>')[-1] }}{% endfor %}<|assistant|>",
    );
    check(&drops, &chat(r#"[{"role":"user","content":"a"}]"#), true);
    check(
        &drops,
        &chat(r#"[{"role":"user","content":"a</think>b"}]"#),
        false,
    );
}

#[test]
fn contents_that_change_the_rendering_by_two_texts_are_rendered() {
    let steps = model(
        "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' and not \
         (m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %}\
         {% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}<|{{ m.role }}|>\
         {% if m.role == 'assistant' and loop.index0 > ns.last %}<think></think>{% endif %}{{ m.content }}\
         {% endfor %}<|assistant|>",
    );
    let turns = |last: &str| {
        format!(
            r#"[{{"role":"user","content":"a"}},{{"role":"assistant","content":"b"}},{{"role":"user","content":"{last}"}}]"#
        )
    };
    check(&steps, &chat(&turns("c")), true);
    check(
        &steps,
        &chat(&turns(r"<tool_response>\nc\n</tool_response>")),
        false,
    );
}

#[test]
fn templates_that_do_more_than_write_contents_are_run() {
    for template in [
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content | upper }}{% endfor %}",
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content | tojson }}{% endfor %}",
        "{% for m in messages %}<|{{ loop.index }}|>{{ m.content }}{% endfor %}",
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content[:9999] }}{% endfor %}",
        "{% for m in messages %}{% if loop.index > loop.length - 5 %}{{ m.content }}|{% endif %}{% endfor %}",
        "{{ messages | length }}{% for m in messages %}|{{ m.content }}{% endfor %}",
        "{{ strftime_now('%Y') }}{% for m in messages %}|{{ m.content }}{% endfor %}",
    ] {
        check(
            &model(template),
            &chat(r#"[{"role":"user","content":"a"}]"#),
            false,
        );
    }
}
