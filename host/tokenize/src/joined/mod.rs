//! Joined renderings: plain chats whose text is joined from parts of a template's rendering, without the template.
//!
//! Most templates write each plain message between two fixed texts. The texts are read from renderings when a model is
//! loaded, and probes compare joined texts with whole renderings (`probe.rs`). A template that fails one is always run.
//! Only chats of texts are joined: an optional system message, then questions and answers in turns, without tools or
//! other arguments. A sample of them is compared as continued conversations are
//! ([`Model::check_chat`](crate::Model::check_chat)).

mod plain_message;
mod probe;

use aho_corasick::AhoCorasick;

pub(crate) use self::plain_message::PlainMessage;
use crate::chat::{BILLING_LINE, Chat};
use crate::model::Model;

/// Longest chats that are joined, in bytes of their messages.
const LONGEST: usize = 64 << 10;

/// Parts of a template's rendering of plain chats.
#[derive(Debug)]
pub(crate) struct JoinedParts {
    /// Name of the template.
    pub(crate) template: String,
    /// Texts around a leading system message: before it, and between it and the first question.
    lead: Option<[String; 2]>,
    /// Text before a first question.
    first: String,
    /// Text between a question and its answer.
    answer: String,
    /// Text between an answer and the next question.
    question: String,
    /// Text after the last question.
    end: String,
    /// Contents with one of these texts may be rendered otherwise.
    markers: Option<AhoCorasick>,
}

impl JoinedParts {
    /// Reads the parts from a model's renderings. Returns `None` if they are not always the same.
    pub(crate) fn of(model: &Model) -> Option<Self> {
        probe::parts(model)
    }

    /// Returns the text of a chat; `None` if the template must render it.
    pub(crate) fn text(&self, chat: &Chat<'_>) -> Option<String> {
        let is_plain = chat.messages.len() <= LONGEST
            && chat.tools.is_none()
            && chat.documents.is_none()
            && chat.reasoning_effort.is_none()
            && chat.chat_template_kwargs.is_none()
            && matches!(chat.add_generation_prompt, None | Some("true"))
            && matches!(chat.continue_final_message, None | Some("false"));
        if !is_plain {
            return None;
        }
        self.join(&PlainMessage::parse(chat.messages)?)
    }

    /// Returns what messages add to a conversation that ends with a question. `known` is the rendering of a conversation
    /// with these contents of its leading message, if it has one, and of its question.
    pub(crate) fn after(
        &self,
        known: &str,
        [lead, question]: [Option<&str>; 2],
        messages: &[PlainMessage<'_>],
    ) -> Option<String> {
        let rest = match (lead, &self.lead) {
            (Some(lead), Some([start, between])) => known
                .strip_prefix(&**start)?
                .strip_prefix(lead)?
                .strip_prefix(&**between)?,
            (Some(_), None) => return None,
            (None, _) => known.strip_prefix(&*self.first)?,
        };
        // The text after a question begins the text between it and its answer.
        let end = rest.strip_prefix(question?)?;
        let before = self.answer.strip_prefix(end)?;
        let mut text = self.text_for(messages);
        self.turns(messages, before, [false, true], &mut text)?;
        Some(text)
    }

    fn join(&self, messages: &[PlainMessage<'_>]) -> Option<String> {
        let mut text = self.text_for(messages);
        let (turns, before) = match messages {
            [lead, turns @ ..] if lead.role == "system" => {
                let [start, between] = self.lead.as_ref()?;
                if lead.content.starts_with(BILLING_LINE) {
                    return None;
                }
                self.add(start, lead, &mut text)?;
                (turns, between)
            }
            turns => (turns, &self.first),
        };
        self.turns(turns, before, [true, false], &mut text)?;
        Some(text)
    }

    /// Creates a text with capacity for messages.
    fn text_for(&self, messages: &[PlainMessage<'_>]) -> String {
        let contents: usize = messages.iter().map(|message| message.content.len()).sum();
        let parts = self.answer.len() + self.question.len() + self.end.len();
        String::with_capacity(contents + parts * (messages.len() / 2 + 1) + self.first.len())
    }

    /// Adds messages in turns, the last of which is a question. `are_questions` says which of the first two are.
    fn turns<'s>(
        &'s self,
        messages: &[PlainMessage<'_>],
        mut before: &'s str,
        are_questions: [bool; 2],
        text: &mut String,
    ) -> Option<()> {
        let mut is_answered = true;
        for (message, is_question) in messages.iter().zip(are_questions.into_iter().cycle()) {
            if message.role != (if is_question { "user" } else { "assistant" }) {
                return None;
            }
            self.add(before, message, text)?;
            before = if is_question { &self.answer } else { &self.question };
            is_answered = !is_question;
        }
        text.push_str(&self.end);
        (!is_answered).then_some(())
    }

    /// Adds a content, which no template trims.
    fn add(&self, before: &str, message: &PlainMessage<'_>, text: &mut String) -> Option<()> {
        let content = &*message.content;
        let is_edge = |c: char| c.is_whitespace() || c.is_control();
        let is_trimmed = content.is_empty() || content.starts_with(is_edge) || content.ends_with(is_edge);
        let is_marked = || {
            self.markers
                .as_ref()
                .is_some_and(|markers| markers.is_match(content))
        };
        if is_trimmed || is_marked() {
            return None;
        }
        text.push_str(before);
        text.push_str(content);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::files::Files;

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
            special_tokens: None,
            only_these_templates: false,
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
}
