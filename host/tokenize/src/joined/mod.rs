//! Joined renderings: plain chats whose text is joined from parts of a template's rendering, without the template.
//!
//! Most templates write each plain message between two fixed texts. The texts are read from renderings when a model is
//! loaded, and probes compare joined texts with whole renderings (`probe.rs`). A template that fails one is always run.
//! Only chats of texts are joined: an optional system message, then questions and answers in turns, without tools or
//! other arguments. A sample of them is compared as continued conversations are
//! ([`Model::check_chat`](crate::Model::check_chat)).

mod plain_message;
pub(crate) mod probe;

use aho_corasick::AhoCorasick;

pub(crate) use self::plain_message::PlainMessage;
use crate::chat::{BILLING_LINE, Chat};

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

    /// Returns the text that messages add to a conversation that ends with a question. `known` is the rendering of a
    /// conversation with these contents of its leading message, if it has one, and of its question.
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

    /// Adds messages in turns, the last of which is a question. `are_questions` marks which of the first two are.
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
mod tests;
