//! Prompts made to cost much: what they may cost is bounded, and others are not hindered by it.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use tokenize::{Budget, Chat, ChatError, EncodeError, FilePaths, Model, Rendered, TokenizationCache};

const STEPS: u64 = 5_000_000;

fn model() -> Model {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny");
    let paths = FilePaths {
        tokenizer: folder,
        chat_template: None,
    };
    Model::load(&paths.read().unwrap(), None).unwrap()
}

/// Returns the result of a text, and the steps that it took.
fn cost(model: &Model, text: String) -> (Result<usize, EncodeError>, u64) {
    let (cache, never) = (TokenizationCache::new(1 << 20), || false);
    let mut budget = Budget::new(STEPS, &never);
    let prepared = model.prepare(Rendered::text(text, false), &cache);
    let made = model.complete(prepared, &cache, &mut budget);
    (made.map(|tokens| tokens.ids.len()), STEPS - budget.left())
}

#[test]
fn megabytes_without_words_are_cut_off_before_they_cost_anything() {
    let model = model();
    for letter in [" ", "a", "\n", "=", "0", "\u{3000}", "é", "\u{a0}"] {
        let (made, steps) = cost(&model, letter.repeat((4 << 20) / letter.len()));
        match made {
            // Digits are words of three at most.
            Ok(tokens) => assert!(letter == "0" && tokens > 0, "{letter:?}"),
            Err(error) => assert!(matches!(error, EncodeError::TooCostly), "{letter:?}: {error:?}"),
        }
        assert!(steps < STEPS / 2, "{letter:?}: {steps}");
    }
}

#[test]
fn an_ordinary_text_costs_little() {
    let model = model();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/model.rs");
    let text = fs::read_to_string(file).unwrap().repeat(20);
    let length = text.len() as u64;
    let (made, steps) = cost(&model, text);
    assert!(made.is_ok() && steps < 4 * length, "{steps} for {length} bytes");
}

#[test]
fn tokens_computed_before_the_budget_ran_out_are_cached() {
    let model = model();
    let cache = TokenizationCache::new(16 << 20);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/model.rs");
    let text = format!("{}{}", fs::read_to_string(file).unwrap(), " ".repeat(1 << 20));
    let never = || false;
    let prepared = || model.prepare(Rendered::text(text.clone(), false), &cache);
    let new = prepared().new_bytes();
    let mut budget = Budget::new(STEPS, &never);
    let made = model.complete(prepared(), &cache, &mut budget);
    assert!(matches!(made, Err(EncodeError::TooCostly)));
    assert!(prepared().new_bytes() < new, "a part of it is known");
    let over = || true;
    let made = model.complete(prepared(), &cache, &mut Budget::new(STEPS, &over));
    assert!(matches!(made, Err(EncodeError::TooLate)));
}

fn refuses(template: &str, messages: &str, is_brief: bool) -> bool {
    let chat = Chat {
        messages,
        is_brief,
        ..Chat::default()
    };
    is_too_costly(template, &chat)
}

fn is_too_costly(template: &str, chat: &Chat<'_>) -> bool {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny");
    let paths = FilePaths {
        tokenizer: folder,
        chat_template: None,
    };
    let mut files = paths.read().unwrap();
    files.templates.insert("default".to_owned(), template.to_owned());
    let rendered = Model::load(&files, None)
        .unwrap()
        .render(chat, SystemTime::UNIX_EPOCH);
    match rendered {
        Ok(_) => false,
        Err(ChatError::TooCostly) => true,
        Err(error) => panic!("{error:?}"),
    }
}

/// Returns this many system messages of a hundred bytes.
fn system(count: usize) -> String {
    let message = format!(r#"{{"role":"system","content":"{}"}}"#, "a".repeat(100));
    format!("[{}]", vec![message; count].join(","))
}

#[test]
fn texts_that_grow_with_each_message_are_given_up() {
    let growing = "{% set ns = namespace(x='') %}{% for m in messages %}{% set ns.x = ns.x + '\\n' + m.content %}{% endfor %}{{ ns.x }}";
    // Gigabytes of copies; their instructions are few.
    assert!(refuses(growing, &system(32_000), false));
    assert!(!refuses(growing, &system(500), true));
    assert!(refuses(growing, &system(1_000), true));
    assert!(!refuses(growing, &system(1_000), false));
}

#[test]
fn a_brief_rendering_has_few_instructions() {
    let quadratic = "{% for m in messages %}{% for n in messages %}{{ n.role }}{% endfor %}{% endfor %}";
    assert!(!refuses(quadratic, &system(50), true));
    assert!(refuses(quadratic, &system(300), true));
    assert!(!refuses(quadratic, &system(300), false));
}

/// Returns a chat of this many short questions, behind a system message of this many bytes.
fn questions(count: usize, system: usize) -> String {
    let system = format!(r#"{{"role":"system","content":"{}"}}"#, "x".repeat(system));
    let question = r#"{"role":"user","content":"a"}"#;
    format!("[{system},{}]", vec![question; count].join(","))
}

/// Each is quadratic: gigabytes of work, by a few instructions for each message.
#[test]
fn work_on_all_messages_for_each_message_is_given_up() {
    for each in [
        "{% set later = messages | selectattr('role', 'equalto', 'user') | list %}",
        "{% set later = messages[loop.index0:] | selectattr('role', 'equalto', 'user') | list %}",
        "{% for c in messages[loop.index0:] %}{% break %}{% endfor %}",
        "{% set a = messages | map(attribute='content') | join %}",
        "{% if messages[1] in messages[::-1] %}{% endif %}",
        "{% set a = messages | reverse | list %}",
        "{% set a = messages | tojson %}",
        "{% set a %}{{ messages }}{% endset %}",
    ] {
        let template = format!("{{% for m in messages %}}{each}{{% endfor %}}x");
        assert!(refuses(&template, &questions(20_000, 0), false), "{each}");
        assert!(!refuses(&template, &questions(100, 0), true), "{each}");
    }
}

#[test]
fn work_on_a_long_text_for_each_message_is_given_up() {
    for each in [
        "{% set a = messages[0].content[1:] %}",
        "{% set a = messages[0].content.split('x') %}",
        "{% set a = messages[0].content.strip() %}",
        "{% set a = messages[0].content ~ 'a' %}",
        "{% set a = messages[0].content | trim | upper %}",
        "{% set a = messages[0].content | replace('x', 'y') %}",
        "{% if 'y' in messages[0].content %}{% endif %}",
        "{% if messages[0].content == messages[0].content[:] %}{% endif %}",
        "{% set a = messages[0].content | length %}",
    ] {
        let template = format!(
            "{{% macro f(m) %}}{each}{{% endmacro %}}{{% for m in messages %}}{{{{ f(m) }}}}{{% endfor %}}x"
        );
        assert!(refuses(&template, &questions(20_000, 200_000), false), "{each}");
        assert!(!refuses(&template, &questions(20, 20_000), true), "{each}");
    }
}

#[test]
fn one_filter_over_two_lists_is_given_up() {
    let template = "{{ messages | selectattr('content', 'in', messages) | list | length }}";
    assert!(refuses(template, &questions(20_000, 0), false));
    assert!(!refuses(template, &questions(100, 0), false));
}

#[test]
fn one_filter_that_searches_a_long_text_for_each_message_is_given_up() {
    let template = "{{ messages | selectattr('role', 'in', messages[0].content) | list | length }}";
    assert!(refuses(template, &questions(20_000, 200_000), false));
    assert!(!refuses(template, &questions(100, 20_000), false));
}

#[test]
fn arguments_of_a_request_do_not_lift_the_limit() {
    let template = "{% for m in messages %}{% set a = messages | tojson %}{% endfor %}x";
    let messages = questions(20_000, 0);
    for limit in ["1000000000000", "\"x\""] {
        let arguments = format!(r#"{{"__limit":{limit}}}"#);
        let chat = Chat {
            messages: &messages,
            chat_template_kwargs: Some(&arguments),
            ..Chat::default()
        };
        assert!(is_too_costly(template, &chat), "{limit}");
    }
}

/// Lookups at both ends of a list, its length, and the work on each message's own text cost no more than before.
#[test]
fn usual_work_on_each_message_is_rendered_at_any_length() {
    let template = "{% for m in messages %}{% if loop.index0 == messages | length - 1 or m == messages[-1] %}{% endif %}\
        {% set c = m.content | trim %}{% if '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip() %}{% endif %}\
        {% if m.role in ['user', 'system'] %}{{ messages[0].role }}{% endif %}{% endfor %}{{ messages[1:] | length }}";
    assert!(!refuses(template, &questions(20_000, 3 << 20), false));
}
