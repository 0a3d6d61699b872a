//! Template probes: vLLM renders a template once at start to learn its properties for Anthropic's Messages API.

use std::time::SystemTime;

use crate::chat::Chat;
use crate::model::Model;
use crate::template::ChatTemplates;

/// Properties of a model's chat templates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TemplateFacts {
    /// Set if one of the templates refuses a system message between the turns, or there is no template.
    pub refuses_inline_system: bool,
    /// `reasoning_effort: "none"` is rendered, and differs from every other effort.
    pub supports_effort_none: bool,
}

const GREETING: &str = r#"[{"role":"user","content":"Hi"}]"#;
const EFFORTS: [&str; 5] = ["\"low\"", "\"medium\"", "\"high\"", "\"xhigh\"", "\"max\""];

impl TemplateFacts {
    pub(crate) fn of(model: &Model, templates: &ChatTemplates) -> Self {
        let chosen = [templates.choose(false), templates.choose(true)];
        let refuses = chosen
            .iter()
            .any(|chosen| chosen.is_none_or(|(_, facts)| facts.refuses_inline_system));
        Self {
            refuses_inline_system: refuses,
            supports_effort_none: supports_effort_none(model),
        }
    }
}

fn supports_effort_none(model: &Model) -> bool {
    let render = |effort| {
        let chat = Chat {
            messages: GREETING,
            reasoning_effort: Some(effort),
            ..Chat::default()
        };
        let rendered = model.render(&chat, SystemTime::UNIX_EPOCH).ok()?;
        Some(rendered.as_str().to_owned())
    };
    let none = render("\"none\"");
    none.is_some() && EFFORTS.into_iter().all(|effort| render(effort) != none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;

    const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}}"#;

    #[track_caller]
    fn check(template: Option<&str>, refuses_inline_system: bool, supports_effort_none: bool) {
        let templates = template.map(|source| ("default".to_owned(), source.to_owned()));
        let files = Files {
            tokenizer: TOKENIZER.into(),
            templates: templates.into_iter().collect(),
            config: None,
            ..Files::default()
        };
        let expected = TemplateFacts {
            refuses_inline_system,
            supports_effort_none,
        };
        assert_eq!(
            Model::load(&files, None).unwrap().template_facts(),
            expected,
            "{template:?}"
        );
    }

    #[test]
    fn a_template_that_takes_system_messages_in_front_only_is_known() {
        let all = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}";
        check(Some(all), false, false);
        let first = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}\
            {{ raise_exception('system first') }}{% endif %}{{ m.content }}{% endfor %}";
        check(Some(first), true, false);
        // Only `transformers` has this.
        check(Some("{{ strftime_now('%Y') }}"), true, false);
        check(Some("{% generation %}a{% endgeneration %}"), true, false);
        check(None, true, false);
    }

    #[test]
    fn an_effort_of_none_is_known_where_it_renders_otherwise() {
        let switch = "{% if enable_thinking is defined and not enable_thinking %}no{% endif %}{{ messages[0].content }}";
        check(Some(switch), false, true);
        let refuses = "{% if reasoning_effort == 'none' %}{{ raise_exception('no') }}{% endif %}x";
        check(Some(refuses), false, false);
        let as_max = "{% if reasoning_effort == 'low' %}low{% else %}max{% endif %}";
        check(Some(as_max), false, false);
    }
}
