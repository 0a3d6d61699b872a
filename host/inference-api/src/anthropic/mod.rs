//! Anthropic Messages requests as chats: the conversion of vLLM 0.32 (`entrypoints/anthropic`), so that a request has
//! the same tokens here as in the engine.
//!
//! Text is copied between slices of the body and never decoded. A body that the engine refuses, or converts by a clock
//! or by Python's `repr`, has no chat here: its tokens stay unknown, and the request is served all the same.

mod blocks;
mod content;
mod image;
mod message;
mod rules;
mod system;
mod thinking;
mod tools;

use std::borrow::Cow;

use self::message::{MessageRole, SentMessage};
pub use self::rules::{DisabledThinking, TemplateRules};
use crate::fields::{Fields, Raw};
use crate::prompt_parts::ChatParts;

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

#[cfg(test)]
mod tests;
