//! Anthropic Messages requests as chats: the conversion of vLLM 0.32 (`entrypoints/anthropic`), so that a request has
//! the same tokens here as in the engine.
//!
//! Text is copied between slices of the body and never decoded. A body that the engine refuses, or converts by a clock
//! or by Python's `repr`, has no chat here: its tokens stay unknown, and the request is served all the same.

mod blocks;
mod content;
mod image;
mod system;
mod thinking;
mod tools;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::fields::{Fields, Raw};
use crate::prompt_parts::ChatParts;

/// Properties of the engine's chat template that affect the conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateRules {
    /// The template accepts only leading system messages: later ones join the leading one.
    pub merges_system: bool,
    /// `reasoning_effort` of a request that disables thinking.
    pub disabled_thinking: DisabledThinking,
}

/// Effort that means no thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisabledThinking {
    /// `none`: the template supports it.
    None,
    /// `low`: the template refuses or ignores `none`.
    Low,
}

/// Fields of a Messages request that make up its prompt, as in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagesPrompt<'a> {
    /// `messages`.
    pub messages: Raw<'a>,
    /// `system`.
    pub system: Option<Raw<'a>>,
    /// `tools`.
    pub tools: Option<Raw<'a>>,
    /// `thinking`.
    pub thinking: Option<Raw<'a>>,
    /// `output_config`.
    pub output_config: Option<Raw<'a>>,
    /// `chat_template_kwargs`.
    pub chat_template_kwargs: Option<Raw<'a>>,
}

/// A message.
#[derive(Deserialize)]
struct SentMessage<'a> {
    role: MessageRole,
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MessageRole {
    User,
    Assistant,
    System,
}

impl<'a> MessagesPrompt<'a> {
    /// Returns the prompt of a body with these fields; `None` without `messages`.
    pub(crate) fn of(fields: &Fields<'a>) -> Option<Self> {
        Some(Self {
            messages: fields.messages?,
            system: fields.system,
            tools: fields.tools,
            thinking: fields.thinking,
            output_config: fields.output_config,
            chat_template_kwargs: fields.chat_template_kwargs,
        })
    }

    /// Returns the chat that the engine renders. Without `rules` the template is unknown, and a request that depends
    /// on it has no chat.
    #[must_use]
    pub fn chat(&self, rules: Option<TemplateRules>) -> Option<ChatParts<'a>> {
        let given: Vec<SentMessage<'_>> = serde_json::from_str(self.messages.get()).ok()?;
        let has_inline_system = given.iter().any(|message| message.role == MessageRole::System);
        let merges = match rules {
            Some(rules) => rules.merges_system,
            None if has_inline_system => return None,
            None => false,
        };
        let mut chat = content::ChatWriter::default();
        let inline = given
            .iter()
            .filter(|message| merges && message.role == MessageRole::System);
        let leading = system::leading(self.system, inline.map(|message| message.content))?;
        if let Some(text) = leading {
            chat.system(&text);
        }
        for message in &given {
            match message.role {
                MessageRole::System if merges => {}
                MessageRole::System => {
                    if let Some(text) = system::inline(message.content)? {
                        chat.system(&text);
                    }
                }
                MessageRole::User | MessageRole::Assistant => chat.message(message)?,
            }
        }
        let tools = self.tools.map(|tools| tools::functions(tools.get()));
        Some(ChatParts {
            messages: Cow::Owned(chat.finish()),
            tools: match tools {
                Some(tools) => Some(Cow::Owned(tools?)),
                None => None,
            },
            reasoning_effort: thinking::effort(self.thinking, self.output_config, rules)?,
            chat_template_kwargs: self.chat_template_kwargs.map(Raw::get),
            ..ChatParts::default()
        })
    }
}

impl MessageRole {
    fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }
}

/// Returns the inside of a JSON string with its escapes; `None` if the value is not a string.
fn inner(raw: &RawValue) -> Option<&str> {
    raw.get().strip_prefix('"')?.strip_suffix('"')
}

#[cfg(test)]
mod tests;
