//! A turn of a conversation: continued from the longest known beginning, or rendered whole and kept for the next turn.

use std::sync::Arc;
use std::time::SystemTime;

use super::frame::Frame;
use super::frame_key::FrameKey;
use super::key::ChatHead;
use super::{LastMessage, StateEnd};
use crate::boundary::TextBoundary;
use crate::cache::TokenizationCache;
use crate::chat::{Chat, ChatError};
use crate::chat_engine::ChatEngine;
use crate::message::Message;
use crate::model::Model;
use crate::node_table::{NewNode, Node};
use crate::prompt::Prepared;
use crate::rendered::Rendered;

/// Shorter conversations are rendered whole, in bytes of their messages: rendering the new messages behind a context
/// costs as much.
const SHORTEST: usize = 4096;
/// Shorter leading messages have no state of their own, in bytes of their rendering.
const SHORTEST_LEAD: usize = 512;
/// Most keys that are looked up for a chat, from its last message on. The first message's is looked up besides.
const MOST_LOOKUPS: usize = 64;

/// Known beginning of a conversation.
#[derive(Debug)]
pub(crate) struct ConversationStart {
    pub(crate) node: Arc<Node>,
    /// Added token at the beginning of the text that follows, or its place if it begins at a seam.
    pub(crate) at: TextBoundary,
    /// Length of the rendering before it, in bytes.
    pub(crate) rendered: usize,
}

/// End of a message in a text, up to which the tokens become the state of a conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    key: u128,
    /// End of the message's text.
    pub(crate) end: usize,
    frame: u32,
    last: LastMessage,
}

/// Places of a text that become states.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// After the leading message, and before the last answer: another question may follow that answer.
    pub(crate) inner: Vec<Mark>,
    /// After the last message.
    pub(crate) last: Option<Mark>,
}

impl Model {
    /// Prepares a chat's prompt: continues a known conversation, or renders the whole chat. `now` is the date for
    /// templates that print it.
    ///
    /// # Errors
    /// [`ChatError`] if it has more than text, or the engine would refuse it too.
    pub fn prepare_chat(
        &self,
        chat: &Chat<'_>,
        now: SystemTime,
        cache: &TokenizationCache,
    ) -> Result<Prepared, ChatError> {
        let keys = self.keys(chat, now, cache);
        let continued = |keys| self.continued(chat, keys, now, usize::MAX, cache);
        if let Some(continued) = keys.as_deref().and_then(continued) {
            return Ok(continued);
        }
        // Longer chats are typed, for their states.
        if keys.is_none()
            && let Some(text) = self.joined().and_then(|joined| joined.text(chat))
        {
            let rendered = Rendered::text(text, chat.adds_special_tokens());
            return Ok(self.prepare(rendered, cache).sampled(cache.samples_this()));
        }
        let (rendered, messages) = self.render_chat(chat, now)?;
        let marks = keys.and_then(|keys| self.marks(chat, &keys, &messages, &rendered, now));
        Ok(self.prepare_marked(rendered, marks.unwrap_or_default(), cache))
    }

    /// Prepares the prompt of a known conversation. Returns `None` if the chat must be rendered whole, or has more than
    /// `most_new` bytes of new messages.
    #[must_use]
    pub fn continue_chat(
        &self,
        chat: &Chat<'_>,
        now: SystemTime,
        most_new: usize,
        cache: &TokenizationCache,
    ) -> Option<Prepared> {
        self.continued(chat, &self.keys(chat, now, cache)?, now, most_new, cache)
    }

    /// Returns the keys after each message, if the chat may be continued.
    fn keys(&self, chat: &Chat<'_>, now: SystemTime, cache: &TokenizationCache) -> Option<Vec<u128>> {
        let is_plain = !cache.conversations.is_off()
            && self.engine() == ChatEngine::Vllm
            && chat.messages.len() >= SHORTEST
            && chat.documents.is_none()
            && matches!(chat.add_generation_prompt, None | Some("true"))
            && matches!(chat.continue_final_message, None | Some("false"))
            && !chat.adds_special_tokens()
            && !chat.positions.is_empty();
        if !is_plain {
            return None;
        }
        let (template, facts) = self.templates().choose(chat.has_tools())?;
        let head = ChatHead {
            model: self.id,
            day: facts.now.day(now)?,
        };
        let is_on = self.frames().is_on(template);
        is_on.then(|| cache.hash.keys(head, chat, chat.positions))
    }

    fn continued(
        &self,
        chat: &Chat<'_>,
        keys: &[u128],
        now: SystemTime,
        most_new: usize,
        cache: &TokenizationCache,
    ) -> Option<Prepared> {
        let latest = keys.iter().enumerate().rev().take(MOST_LOOKUPS);
        let first = keys.iter().enumerate().take(1);
        let (at, node, numbered) = latest.chain(first).find_map(|(at, key)| {
            let node = cache.conversations.state(*key)?;
            let numbered = self.frames().by_number(node.end()?.0.frame, now)?;
            Some((at, node, numbered))
        })?;
        let (end, text) = node.end()?;
        let frame = &numbered.frame;
        let new = match (chat.positions.get(at + 1), chat.positions.last()) {
            (Some(first), Some(last)) => chat.messages.get(first.start..last.end)?,
            _ => "",
        };
        if new.len() > most_new {
            return None;
        }
        let suffix = frame.suffix(self, end.last, new, chat.is_brief)?;
        if !self.frames().takes(frame, &suffix.messages) {
            return None;
        }
        let known = text.len();
        let text = [text, &suffix.text].concat();
        let maker = MarkMaker {
            model: self,
            frame,
            number: end.frame,
            text: &text,
        };
        let last = suffix.end.zip(keys.last());
        let last = last.map(|((last, length), key)| maker.mark(*key, known + length, last));
        let earlier = maker.earlier(chat, keys, &suffix.messages);
        let marks = Marks {
            inner: earlier.into_iter().collect(),
            last,
        };
        let start = ConversationStart {
            at: TextBoundary {
                start: 0,
                end: end.token_bytes as usize,
                id: end.id,
            },
            rendered: end.rendered as usize,
            node: Arc::clone(&node),
        };
        let prepared = self.prepare_continued(text, start, &marks, cache)?;
        Some(prepared.sampled(cache.samples_this()))
    }

    /// Returns the places of a whole rendering that become states.
    fn marks(
        &self,
        chat: &Chat<'_>,
        keys: &[u128],
        messages: &[Message],
        rendered: &Rendered,
        now: SystemTime,
    ) -> Option<Marks> {
        let lead = messages.first()?.text("role")?;
        let lead = Some(lead).filter(|role| matches!(*role, "system" | "developer"));
        let (template, _) = self.templates().choose(chat.has_tools())?;
        let key = FrameKey {
            template,
            lead,
            has_tools: chat.has_tools(),
            arguments: chat.chat_template_kwargs,
            effort: chat.reasoning_effort,
        };
        let numbered = self.frames().find(self, key, now)?;
        let (number, frame) = (numbered.number, &numbered.frame);
        let (leading, others) = messages.split_at(usize::from(lead.is_some()));
        let takes_lead = |lead| self.frames().takes_lead(frame, lead);
        if messages.len() != keys.len()
            || !leading.iter().all(takes_lead)
            || !self.frames().takes(frame, others)
        {
            return None;
        }
        let text = rendered.as_str();
        let maker = MarkMaker {
            model: self,
            frame,
            number,
            text,
        };
        let last = LastMessage::of(messages.last()?)?;
        let end = frame.end_of(text, last);
        let last = end.zip(keys.last()).map(|(end, key)| maker.mark(*key, end, last));
        let lead = lead.filter(|_| keys.len() > 1).and_then(|_| {
            let end = self.end_of_lead(chat, frame, text, now)?;
            Some(maker.mark(keys[0], end, LastMessage::Lead))
        });
        let earlier = maker.earlier(chat, keys, others);
        Some(Marks {
            inner: lead.into_iter().chain(earlier).collect(),
            last,
        })
    }

    /// Returns the length of the leading message's rendering, if the whole begins with it.
    fn end_of_lead(&self, chat: &Chat<'_>, frame: &Frame, rendered: &str, now: SystemTime) -> Option<usize> {
        let message = chat.messages.get(chat.positions.first()?.clone())?;
        if !frame.continues(LastMessage::Lead)
            || message.len() + chat.tools.map_or(0, str::len) < SHORTEST_LEAD
        {
            return None;
        }
        let list = ["[", message, "]"].concat();
        let alone = Chat {
            messages: &list,
            add_generation_prompt: Some("false"),
            positions: &[],
            ..*chat
        };
        let alone = self.render(&alone, now).ok()?;
        rendered.starts_with(alone.as_str()).then(|| alone.as_str().len())
    }
}

/// Maker of the places of one text.
struct MarkMaker<'a> {
    model: &'a Model,
    frame: &'a Frame,
    number: u32,
    text: &'a str,
}

impl MarkMaker<'_> {
    fn mark(&self, key: u128, end: usize, last: LastMessage) -> Mark {
        Mark {
            key,
            end,
            frame: self.number,
            last,
        }
    }

    /// Returns the place before the last answer, if other messages than the last answer and question are new. `new`:
    /// the last messages of the chat.
    fn earlier(&self, chat: &Chat<'_>, keys: &[u128], new: &[Message]) -> Option<Mark> {
        let pairs = new
            .windows(2)
            .enumerate()
            .skip(usize::from(keys.len() > new.len()));
        let (at, last) = pairs.rev().find_map(|(at, pair)| {
            let last = LastMessage::of(&pair[0])?;
            (pair[1].text("role") == Some("assistant")).then_some((at, last))
        })?;
        let at = keys.len() - new.len() + at;
        let (first, end) = (chat.positions.get(at + 1)?, chat.positions.last()?);
        let suffix = self.frame.suffix(
            self.model,
            last,
            chat.messages.get(first.start..end.end)?,
            chat.is_brief,
        )?;
        let end = self.text.strip_suffix(&*suffix.text)?.len();
        Some(self.mark(keys[at], end, last))
    }
}

/// State to be made of a place.
pub(crate) struct NewState<'a> {
    /// Text with the place.
    pub(crate) text: &'a str,
    /// Added token before the place.
    pub(crate) at: TextBoundary,
    /// Length of the rendering before the text, in bytes.
    pub(crate) rendered: usize,
    /// Tokens up to the added token, after those of the state before.
    pub(crate) tokens: &'a [u32],
}

impl Mark {
    /// Adds the state: the tokens that follow `before`, up to an added token, and the text from that token on.
    pub(crate) fn keep(
        &self,
        before: Option<Arc<Node>>,
        state: NewState<'_>,
        cache: &TokenizationCache,
    ) -> Option<Arc<Node>> {
        let NewState {
            text,
            at,
            rendered,
            tokens,
        } = state;
        let end = StateEnd {
            frame: self.frame,
            last: self.last,
            id: at.id,
            token_bytes: u32::try_from(at.end - at.start).ok()?,
            rendered: u32::try_from(rendered + at.start).ok()?,
        };
        let node = NewNode {
            before,
            text: text.get(at.start..self.end)?,
            tokens,
        };
        Some(cache.conversations.insert_state(self.key, node, end))
    }

    /// Returns the state, if it is known and its frame is the place's.
    pub(crate) fn known(&self, cache: &TokenizationCache) -> Option<Arc<Node>> {
        let state = cache.conversations.state(self.key)?;
        let (end, _) = state.end()?;
        (end.frame == self.frame).then_some(state)
    }
}
