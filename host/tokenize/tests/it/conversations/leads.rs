//! Leading messages with texts that a template looks for.

use super::*;

/// A template in the shape of SmolLM3's: the leading message selects how all answers are written.
const SWITCHED: Template = Template {
    name: "switched",
    source: "{%- set lead = namespace(text='', thinks=true) -%}\
        {%- if messages[0].role in ['system', 'developer'] -%}{%- set lead.text = messages[0].content -%}{%- endif -%}\
        {%- if '/no_think' in lead.text -%}{%- set lead.thinks = false -%}{%- endif -%}\
        {%- if messages[0].role == 'developer' and lead.text.endswith('/quiet') -%}{%- set lead.thinks = false -%}{%- endif -%}\
        {%- for m in messages -%}\
        {{- '<|im_start|>' + m.role + '\n' -}}\
        {%- if m.role == 'assistant' and not lead.thinks -%}{{- '<think>\n\n</think>\n' -}}{%- endif -%}\
        {{- m.content + '<|im_end|>\n' -}}\
        {%- endfor -%}\
        {%- if add_generation_prompt -%}\
        {{- '<|im_start|>assistant\n' -}}\
        {%- if not lead.thinks -%}{{- '<think>\n\n</think>\n' -}}{%- endif -%}\
        {%- endif -%}",
    tokens: &["<|im_start|>", "<|im_end|>"],
    continued: 3,
    continued_with_tools: 0,
};

/// Returns the simple conversation behind a leading message with this end.
fn behind(role: &str, end: &str) -> Conversation {
    let mut conversation = simple(false);
    let long = conversation.messages[0]["content"].as_str().unwrap().to_owned();
    let lead = json!({"role": role, "content": long + end});
    conversation.messages[0] = json!({"role": "user", "content": "Who?"});
    conversation.messages.insert(0, lead);
    conversation
}

#[test]
fn a_leading_message_that_changes_the_answers_is_rendered_whole() {
    let model = Model::load(&files(&SWITCHED), None).unwrap();
    for (role, end, continued) in [
        ("system", "Be brief.", 3),
        ("system", "/no_think", 0),
        ("system", "Use /no_think always.", 0),
        ("developer", "Be brief.", 3),
        ("developer", "/quiet", 0),
    ] {
        let cache = cache();
        let count = play(&SWITCHED, &model, &cache, &behind(role, end));
        assert_eq!(count, continued, "{role} with {end}");
    }
}

#[test]
fn a_text_that_other_messages_must_not_have_may_be_in_a_leading_message() {
    let (template, model) = MODELS
        .iter()
        .find(|(template, _)| template.name == "Qwen 3")
        .unwrap();
    let count = play(
        template,
        model,
        &cache(),
        &behind("system", "Think in <think></think>."),
    );
    assert_eq!(count, 3);
}
