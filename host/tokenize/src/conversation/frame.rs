//! Frames: short contexts behind which the new messages of a conversation are rendered.
//!
//! A frame has one context for each kind of message that a known conversation may end with. The rendering of the new
//! messages is what they add to the rendering of the context. Contexts have other tools and another system message
//! than the chat, because their text is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use aho_corasick::AhoCorasick;

use super::LastMessage;
use super::frame_key::FrameKey;
use super::frame_table::{FrameTable, NumberedFrame};
use super::probe;
use crate::chat::Chat;
use crate::joined::PlainMessage;
use crate::message::Message;
use crate::model::Model;

/// Longest arguments of a frame in bytes.
const LONGEST_ARGUMENTS: usize = 512;

const TOOLS: &str = r#"[{"type":"function","function":{"name":"t","description":"d","parameters":{"type":"object","properties":{}}}}]"#;
const USER: &str = r#"{"role":"user","content":"u"}"#;
/// A call and its result. Some templates require ids of nine characters.
const CALL: &str = r#"{"role":"assistant","content":"","tool_calls":[{"id":"call00001","type":"function","function":{"name":"t","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call00001","name":"t","content":"r"}"#;

/// Frames of a model's templates.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    templates: Vec<TemplateState>,
    table: FrameTable<Frame>,
}

/// State of a template whose conversations are continued.
#[derive(Debug)]
struct TemplateState {
    name: String,
    /// Contents with one of these texts may be rendered otherwise in a longer conversation.
    markers: Option<AhoCorasick>,
    /// Behind leading messages with one of these texts, others may be rendered otherwise.
    lead_markers: Option<AhoCorasick>,
    /// Set after a difference to a whole rendering.
    is_off: AtomicBool,
}

/// Frame of the conversations with one key.
#[derive(Debug)]
pub(crate) struct Frame {
    template: String,
    lead: Option<String>,
    has_tools: bool,
    arguments: Option<String>,
    effort: Option<String>,
    /// Contexts by the kind of their last message; `None` if conversations are not continued there.
    contexts: [Option<FrameContext>; 3],
    /// Messages may have calls of tools, and results of tools.
    pub(super) takes_tools: bool,
    /// Messages may have reasoning.
    pub(super) takes_reasoning: bool,
}

#[derive(Debug)]
struct FrameContext {
    /// Messages in JSON, without brackets.
    messages: String,
    count: usize,
    /// Their rendering.
    text: String,
    /// Text that the template appends for the answer.
    prompt: String,
}

/// Text that new messages add to a conversation.
pub(crate) struct Suffix {
    pub(crate) text: String,
    pub(crate) messages: Vec<Message>,
    /// Kind of the last message, and the length of the text without the part for the answer. `None` if the conversation
    /// cannot be continued after it.
    pub(crate) end: Option<(LastMessage, usize)>,
}

impl Frames {
    /// Probes a model's templates.
    pub(crate) fn of(model: &Model) -> Self {
        let mut frames = Self::default();
        for has_tools in [false, true] {
            let Some((template, facts)) = model.templates().choose(has_tools) else {
                continue;
            };
            if facts.now.day(SystemTime::UNIX_EPOCH).is_none() {
                continue;
            }
            let probed = |lead| {
                let key = FrameKey {
                    template,
                    lead,
                    has_tools,
                    arguments: None,
                    effort: None,
                };
                Frame::probed(model, key)
            };
            let [plain, led] = [None, Some("system")].map(probed);
            if frames.template(template).is_none() {
                let Some(literals) = model.templates().literals(template) else {
                    continue;
                };
                // Elsewhere the role becomes the other.
                let developer = facts.supports_developer.then(|| probed(Some("developer")));
                let leads: Vec<&Frame> = std::iter::once(&led).chain(&developer).collect();
                frames.templates.push(TemplateState {
                    name: template.to_owned(),
                    markers: search(probe::markers(model, &plain, literals)),
                    lead_markers: search(probe::lead_markers(model, &leads, &literals.single)),
                    is_off: AtomicBool::new(false),
                });
            }
            for frame in [plain, led] {
                frames.add(frame, SystemTime::UNIX_EPOCH);
            }
        }
        frames
    }

    fn add(&self, frame: Frame, now: SystemTime) -> Arc<NumberedFrame<Frame>> {
        let same = |one: &Frame, other: &Frame| one.key() == other.key();
        self.table.add(frame, now, same)
    }

    fn template(&self, name: &str) -> Option<&TemplateState> {
        self.templates.iter().find(|template| template.name == name)
    }

    /// Returns `true` if conversations of the template may be continued.
    pub(crate) fn is_on(&self, template: &str) -> bool {
        let template = self.template(template);
        template.is_some_and(|template| !template.is_off.load(Ordering::Relaxed))
    }

    /// Ends the continuation of conversations of the template. Returns `false` if it had ended.
    pub(crate) fn turn_off(&self, template: &str) -> bool {
        let template = self.template(template);
        template.is_some_and(|template| !template.is_off.swap(true, Ordering::Relaxed))
    }

    /// Returns the frame with a number; `None` if it gave way to another one.
    pub(crate) fn by_number(&self, number: u32, now: SystemTime) -> Option<Arc<NumberedFrame<Frame>>> {
        self.table.by_number(number, now)
    }

    /// Returns the frame of a key. A new frame is probed first. Returns `None` if the table takes no new one now.
    pub(crate) fn find(
        &self,
        model: &Model,
        key: FrameKey<'_>,
        now: SystemTime,
    ) -> Option<Arc<NumberedFrame<Frame>>> {
        let arguments = key.arguments.map_or(0, str::len) + key.effort.map_or(0, str::len);
        self.table.fitting(now, |frame| frame.key() == key).or_else(|| {
            let is_added = arguments <= LONGEST_ARGUMENTS && self.table.admits(now);
            is_added.then(|| self.add(Frame::probed(model, key), now))
        })
    }

    /// Returns `true` if other messages are rendered alike behind this leading message and behind that of the frame.
    pub(crate) fn takes_lead(&self, frame: &Frame, lead: &Message) -> bool {
        let markers = self
            .template(&frame.template)
            .and_then(|template| template.lead_markers.as_ref());
        markers.is_none_or(|markers| !lead.content_matches(markers))
    }

    /// Returns `true` if the messages are rendered alike in every conversation.
    pub(crate) fn takes(&self, frame: &Frame, messages: &[Message]) -> bool {
        let markers = self
            .template(&frame.template)
            .and_then(|template| template.markers.as_ref());
        messages.iter().all(|message| {
            let role = message.text("role").unwrap_or_default();
            let tools = role == "tool" || message.field("tool_calls").is_some();
            let reasons = ["reasoning", "reasoning_content"];
            let reasons = reasons.iter().any(|name| message.field(name).is_some());
            matches!(role, "user" | "assistant" | "tool")
                && (frame.takes_tools || !tools)
                && (frame.takes_reasoning || !reasons)
                && markers.is_none_or(|markers| !message.content_matches(markers))
        })
    }
}

/// Returns the search for markers, if there are any.
fn search(markers: Vec<String>) -> Option<AhoCorasick> {
    (!markers.is_empty())
        .then(|| AhoCorasick::new(markers).ok())
        .flatten()
}

impl Frame {
    pub(super) fn probed(model: &Model, key: FrameKey<'_>) -> Self {
        let mut frame = Self {
            template: key.template.to_owned(),
            lead: key.lead.map(str::to_owned),
            has_tools: key.has_tools,
            arguments: key.arguments.map(str::to_owned),
            effort: key.effort.map(str::to_owned),
            contexts: [const { None }; 3],
            takes_tools: true,
            takes_reasoning: true,
        };
        for last in [LastMessage::Lead, LastMessage::User, LastMessage::Tool] {
            frame.contexts[last as usize] = frame.context(model, last);
        }
        probe::restrict(model, &mut frame);
        frame
    }

    pub(super) fn key(&self) -> FrameKey<'_> {
        FrameKey {
            template: &self.template,
            lead: self.lead.as_deref(),
            has_tools: self.has_tools,
            arguments: self.arguments.as_deref(),
            effort: self.effort.as_deref(),
        }
    }

    pub(super) fn lead(&self) -> Option<&str> {
        self.lead.as_deref()
    }

    /// Ends the continuation after messages of this kind.
    pub(super) fn forbid(&mut self, last: LastMessage) {
        self.contexts[last as usize] = None;
    }

    /// Returns `true` if conversations are continued after messages of this kind.
    pub(super) fn continues(&self, last: LastMessage) -> bool {
        self.contexts[last as usize].is_some()
    }

    /// Returns a chat of the frame.
    pub(super) fn chat<'a>(&'a self, messages: &'a str, tools: &'a str, prompt: &'a str) -> Chat<'a> {
        Chat {
            messages,
            tools: self.has_tools.then_some(tools),
            chat_template_kwargs: self.arguments.as_deref(),
            reasoning_effort: self.effort.as_deref(),
            add_generation_prompt: Some(prompt),
            // A probe may run on a request's thread.
            is_brief: true,
            ..Chat::default()
        }
    }

    fn context(&self, model: &Model, last: LastMessage) -> Option<FrameContext> {
        let lead = self.lead.as_ref();
        let lead = lead.map(|role| format!(r#"{{"role":"{role}","content":"s"}}"#));
        let own = match last {
            LastMessage::Lead => return self.rendered(model, &[lead?.as_str()], 1, false),
            LastMessage::User => vec![USER],
            LastMessage::Tool => vec![USER, CALL],
        };
        let count = usize::from(lead.is_some()) + if last == LastMessage::Tool { 3 } else { 1 };
        let messages: Vec<&str> = lead.as_deref().into_iter().chain(own).collect();
        self.rendered(model, &messages, count, true)
    }

    fn rendered(
        &self,
        model: &Model,
        messages: &[&str],
        count: usize,
        is_answered: bool,
    ) -> Option<FrameContext> {
        let messages = messages.join(",");
        let list = format!("[{messages}]");
        let render = |prompt| {
            let chat = self.chat(&list, TOOLS, prompt);
            model.render(&chat, SystemTime::UNIX_EPOCH).ok()
        };
        let text = render("false")?.into_text();
        let prompt = match is_answered {
            true => render("true")?.as_str().strip_prefix(&*text)?.to_owned(),
            false => String::new(),
        };
        Some(FrameContext {
            messages,
            count,
            text,
            prompt,
        })
    }

    /// Returns the length of a whole rendering without the text for the answer.
    pub(crate) fn end_of(&self, rendered: &str, last: LastMessage) -> Option<usize> {
        let context = self.contexts[last as usize].as_ref()?;
        Some(rendered.strip_suffix(&*context.prompt)?.len())
    }

    /// Renders new messages of a conversation that is known up to a message of this kind. `new` is their JSON without
    /// brackets.
    pub(crate) fn suffix(
        &self,
        model: &Model,
        last: LastMessage,
        new: &str,
        is_brief: bool,
    ) -> Option<Suffix> {
        let context = self.contexts[last as usize].as_ref()?;
        if new.is_empty() {
            return Some(Suffix {
                text: context.prompt.clone(),
                messages: Vec::new(),
                end: None,
            });
        }
        if let Some(joined) = self.joined(model, last, new) {
            return Some(joined);
        }
        let list = ["[", &context.messages, ",", new, "]"].concat();
        let chat = Chat {
            is_brief,
            ..self.chat(&list, TOOLS, "true")
        };
        let (rendered, mut messages) = model.render_chat(&chat, SystemTime::UNIX_EPOCH).ok()?;
        let mut text = rendered.into_text();
        if !text.starts_with(&*context.text) {
            return None;
        }
        text.drain(..context.text.len());
        messages.drain(..context.count);
        let first = messages.first()?.text("role")?;
        let follows = match last {
            LastMessage::Lead => first == "user",
            LastMessage::User | LastMessage::Tool => first == "assistant",
        };
        if !follows {
            return None;
        }
        Some(self.ended(text, messages))
    }

    fn ended(&self, text: String, messages: Vec<Message>) -> Suffix {
        let end = messages.last().and_then(LastMessage::of);
        let end = end.and_then(|last| Some((last, self.end_of(&text, last)?)));
        Suffix { text, messages, end }
    }

    /// Joins plain messages that follow a question, without the template.
    fn joined(&self, model: &Model, last: LastMessage, new: &str) -> Option<Suffix> {
        let is_plain = last == LastMessage::User
            && !self.has_tools
            && self.arguments.is_none()
            && self.effort.is_none()
            && matches!(self.lead.as_deref(), None | Some("system"));
        let joined = model
            .joined()
            .filter(|joined| is_plain && joined.template == self.template)?;
        let context = self.contexts[last as usize].as_ref()?;
        let list = ["[", new, "]"].concat();
        let messages = PlainMessage::parse(&list)?;
        let question = [self.lead.as_ref().map(|_| "s"), Some("u")];
        let text = joined.after(&context.text, question, &messages)?;
        let messages = messages.iter().map(Message::from).collect();
        Some(self.ended(text, messages))
    }
}

impl LastMessage {
    /// Returns the kind of a message after which a conversation can be continued.
    pub(crate) fn of(message: &Message) -> Option<Self> {
        match message.text("role")? {
            "user" => Some(Self::User),
            "tool" => Some(Self::Tool),
            _ => None,
        }
    }
}
