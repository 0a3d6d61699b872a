//! Prompt parts for tokenization in the router: slices of the body.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::anthropic::MessagesPrompt;
use crate::endpoint::PromptField;
use crate::fields::Raw;
use crate::peek::{Peek, Prompt};
use crate::tokenize::as_messages;

/// A text prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptParts<'a> {
    /// One text.
    Text {
        /// The text.
        text: Cow<'a, str>,
        /// The tokenizer adds its special tokens; the default of engines.
        add_special_tokens: bool,
    },
    /// A conversation.
    Chat(ChatParts<'a>),
    /// A conversation of Anthropic's Messages API; its chat depends on the template.
    Messages(MessagesPrompt<'a>),
}

/// A conversation: each field as raw JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChatParts<'a> {
    /// `messages`.
    pub messages: Cow<'a, str>,
    /// `tools`.
    pub tools: Option<Cow<'a, str>>,
    /// `documents`.
    pub documents: Option<&'a str>,
    /// `reasoning_effort`.
    pub reasoning_effort: Option<&'a str>,
    /// `chat_template_kwargs`.
    pub chat_template_kwargs: Option<&'a str>,
    /// `add_generation_prompt`.
    pub add_generation_prompt: Option<&'a str>,
    /// `continue_final_message`.
    pub continue_final_message: Option<&'a str>,
    /// `add_special_tokens`.
    pub add_special_tokens: Option<&'a str>,
    /// `tool_choice`.
    pub tool_choice: Option<&'a str>,
    /// `reasoning`.
    pub reasoning: Option<&'a str>,
}

impl<'a> Peek<'a> {
    /// Returns the parts of the prompt. `None` for token ids, batches, and prompts that only the engine can tokenize:
    /// with a client's template, truncation, or embeddings instead of text.
    #[must_use]
    pub fn prompt_parts(&self) -> Option<PromptParts<'a>> {
        let fields = &self.fields;
        // There the engine reads none of the fields below.
        if self.endpoint.spec().prompt == PromptField::AnthropicMessages {
            return MessagesPrompt::of(fields).map(PromptParts::Messages);
        }
        let is_given = |raw: Option<Raw<'_>>| raw.is_some_and(|raw| raw.get() != "null");
        let only_the_engines = [
            fields.chat_template,
            fields.mm_processor_kwargs,
            fields.truncate_prompt_tokens,
            fields.prompt_embeds,
            // Only some models complete up to one, by a format of their own.
            fields.suffix,
        ];
        if only_the_engines.into_iter().any(is_given) {
            return None;
        }
        let place = self.endpoint.spec().prompt;
        match self.prompt.single() {
            // The templates of embedding models end differently.
            Prompt::Messages(_) if place == PromptField::Input => None,
            Prompt::Messages(messages) => Some(PromptParts::Chat(ChatParts {
                messages: Cow::Borrowed(messages.get()),
                tools: fields.tools.map(|tools| Cow::Borrowed(tools.get())),
                documents: fields.documents.map(Raw::get),
                reasoning_effort: fields.reasoning_effort.map(Raw::get),
                chat_template_kwargs: fields.chat_template_kwargs.map(Raw::get),
                add_generation_prompt: fields.add_generation_prompt.map(Raw::get),
                continue_final_message: fields.continue_final_message.map(Raw::get),
                add_special_tokens: fields.add_special_tokens.map(Raw::get),
                tool_choice: fields.tool_choice.map(Raw::get),
                reasoning: fields.reasoning.map(Raw::get),
            })),
            Prompt::Text(input) if place == PromptField::Response => {
                let messages = as_messages(self, input)?.concat();
                Some(PromptParts::Chat(ChatParts {
                    messages: Cow::Owned(messages),
                    reasoning_effort: effort_of(fields.reasoning)?,
                    chat_template_kwargs: fields.chat_template_kwargs.map(Raw::get),
                    ..ChatParts::default()
                }))
            }
            Prompt::Text(text) => Some(PromptParts::Text {
                text: read_text(text)?,
                add_special_tokens: fields.add_special_tokens.is_none_or(|raw| raw.get() != "false"),
            }),
            Prompt::TokenIds(_) | Prompt::Batch(_) | Prompt::Other => None,
        }
    }
}

/// Field `reasoning` of the Responses API.
#[derive(Deserialize)]
struct Reasoning<'a> {
    #[serde(borrow)]
    effort: Option<&'a RawValue>,
}

/// Returns `reasoning.effort`; the outer `None`: it cannot be read.
#[expect(
    clippy::option_option,
    reason = "an absent effort differs from one that cannot be read"
)]
pub(crate) fn effort_of(reasoning: Option<Raw<'_>>) -> Option<Option<&str>> {
    let Some(reasoning) = reasoning else {
        return Some(None);
    };
    let Reasoning { effort } = serde_json::from_str(reasoning.get()).ok()?;
    Some(effort.map(RawValue::get))
}

fn read_text(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(raw.get()).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use crate::peek::peek;

    fn parts(endpoint: Endpoint, body: &str) -> Option<String> {
        let peek = peek(endpoint, body.as_bytes()).unwrap();
        peek.prompt_parts().map(|parts| match parts {
            PromptParts::Text {
                text,
                add_special_tokens,
            } => format!("{text} {add_special_tokens}"),
            PromptParts::Chat(chat) => {
                let arguments = [chat.reasoning_effort, chat.chat_template_kwargs];
                let arguments: Vec<_> = arguments.into_iter().flatten().collect();
                format!("{} {:?}{}", chat.messages, chat.tools, arguments.concat())
            }
            PromptParts::Messages(prompt) => {
                let chat = prompt.chat(None);
                chat.map_or_else(String::new, |chat| format!("{} {:?}", chat.messages, chat.tools))
            }
        })
    }

    #[track_caller]
    fn check(endpoint: Endpoint, body: &str, expected: Option<&str>) {
        assert_eq!(parts(endpoint, body).as_deref(), expected);
    }

    #[test]
    fn texts_and_chats_have_parts() {
        check(
            Endpoint::Completions,
            r#"{"prompt":"a\n\"b"}"#,
            Some("a\n\"b true"),
        );
        check(
            Endpoint::Completions,
            r#"{"prompt":["a"],"add_special_tokens":false}"#,
            Some("a false"),
        );
        check(Endpoint::Embeddings, r#"{"input":"a"}"#, Some("a true"));
        check(
            Endpoint::ChatCompletions,
            r#"{"messages":[{"a":1}],"tools":[]}"#,
            Some(r#"[{"a":1}] Some("[]")"#),
        );
        check(
            Endpoint::Responses,
            r#"{"input":"hi"}"#,
            Some(r#"[{"role":"user","content":"hi"}] None"#),
        );
        check(
            Endpoint::Responses,
            r#"{"input":"hi","instructions":"","reasoning":{"summary":null,"effort":"low"},"chat_template_kwargs":{"a":1}}"#,
            Some(r#"[{"role":"user","content":"hi"}] None"low"{"a":1}"#),
        );
        check(
            Endpoint::Responses,
            r#"{"input":"hi","reasoning":{"effort":null}}"#,
            Some(r#"[{"role":"user","content":"hi"}] None"#),
        );
        check(Endpoint::Responses, r#"{"input":"hi","reasoning":"low"}"#, None);
    }

    #[test]
    fn a_messages_request_is_a_chat_whatever_else_its_body_has() {
        check(
            Endpoint::Messages,
            r#"{"system":"s","messages":[{"role":"user","content":"a"}],"chat_template":"x","continue_final_message":true}"#,
            Some(r#"[{"role":"system","content":"s"},{"role":"user","content":"a"}] None"#),
        );
        check(Endpoint::Messages, r#"{"prompt":"a"}"#, None);
    }

    #[test]
    fn prompts_only_the_engine_can_tokenize_have_no_parts() {
        for body in [
            r#"{"messages":[],"chat_template":"x"}"#,
            r#"{"messages":[],"mm_processor_kwargs":{}}"#,
            r#"{"messages":[],"truncate_prompt_tokens":5}"#,
            "{}",
        ] {
            check(Endpoint::ChatCompletions, body, None);
        }
        check(Endpoint::Completions, r#"{"prompt":[1,2]}"#, None);
        check(Endpoint::Completions, r#"{"prompt":["a","b"]}"#, None);
        check(Endpoint::Completions, r#"{"prompt":"a","suffix":"b"}"#, None);
        check(Endpoint::Embeddings, r#"{"messages":[]}"#, None);
    }
}
