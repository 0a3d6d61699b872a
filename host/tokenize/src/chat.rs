//! Chat template variables: a chat request converted as in vLLM; `sglang/mod.rs` converts it as in SGLang. Contents
//! become text or parts, arguments of tool calls objects, tools the fields of the API.

use std::ops::Range;

use minijinja::ErrorKind;
use minijinja::value::{Value, ValueKind};
use thiserror::Error;

use crate::content_format::ContentFormat;
use crate::message::{self, Message};
use crate::python::{strip, strip_end};
use crate::template::TemplateProperties;
use crate::value;

/// Chat request: slices of its JSON body.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chat<'a> {
    /// `messages`.
    pub messages: &'a str,
    /// `tools`.
    pub tools: Option<&'a str>,
    /// `documents`.
    pub documents: Option<&'a str>,
    /// `reasoning_effort`.
    pub reasoning_effort: Option<&'a str>,
    /// `chat_template_kwargs`.
    pub chat_template_kwargs: Option<&'a str>,
    /// `add_generation_prompt`; true if absent.
    pub add_generation_prompt: Option<&'a str>,
    /// `continue_final_message`.
    pub continue_final_message: Option<&'a str>,
    /// Fields that one engine reads.
    pub of_engines: EngineFields<'a>,
    /// Positions of the elements in the text of `messages`, all of them; empty if they are unknown. Then the chat
    /// continues no known conversation.
    pub positions: &'a [Range<usize>],
    /// The rendering may take a few milliseconds: [`ChatError::TooCostly`] if it would take more.
    pub is_brief: bool,
}

/// Fields of a chat request that only one engine reads.
#[derive(Debug, Clone, Copy, Default)]
pub struct EngineFields<'a> {
    /// `add_special_tokens` of vLLM; false if absent.
    pub add_special_tokens: Option<&'a str>,
    /// `tool_choice` of SGLang.
    pub tool_choice: Option<&'a str>,
    /// `reasoning` of SGLang.
    pub reasoning: Option<&'a str>,
}

/// A chat cannot be rendered here.
#[derive(Debug, Error)]
pub enum ChatError {
    /// A field is not valid JSON of its type.
    #[error("read a field of the chat")]
    Json(#[source] serde_json::Error),
    /// The chat has contents that only the engine can tokenize, or that the engine would refuse.
    #[error("render a chat with {0}")]
    Unsupported(&'static str),
    /// The template refuses it.
    #[error("render the chat template")]
    Template(#[source] minijinja::Error),
    /// The rendering takes more than it may.
    #[error("render the chat template within its limits")]
    TooCostly,
}

impl From<minijinja::Error> for ChatError {
    fn from(error: minijinja::Error) -> Self {
        match error.kind() {
            ErrorKind::OutOfFuel => Self::TooCostly,
            _ => Self::Template(error),
        }
    }
}

/// Appended to a final message that is continued; it and everything after it is cut off.
pub(crate) const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
/// Start of a line that changes with every request. vLLM leaves it out of system prompts.
pub(crate) const BILLING_LINE: &str = "x-anthropic-billing-header";

/// Variables of a template.
pub(crate) struct TemplateVariables {
    pub(crate) messages: Vec<Value>,
    /// Messages as sent.
    pub(crate) given: Vec<Message>,
    pub(crate) tools: Value,
    /// Documents of the request, if it has some.
    pub(crate) documents: Option<Value>,
    pub(crate) add_generation_prompt: bool,
    /// Text to continue, if the final message is continued.
    pub(crate) continued: Option<String>,
    /// Further variables set by the client.
    pub(crate) extra: Vec<(Value, Value)>,
}

/// Returns the client's arguments of the template. Those that stand for other variables are refused.
pub(crate) fn template_arguments(given: &Value, refused: &[&str]) -> Result<Vec<(Value, Value)>, ChatError> {
    let mut arguments = Vec::new();
    for key in given.try_iter().into_iter().flatten() {
        if key.as_str().is_some_and(|key| refused.contains(&key)) {
            return Err(ChatError::Unsupported(
                "arguments of the template that stand for others",
            ));
        }
        let item = given.get_item(&key).map_err(ChatError::Template)?;
        arguments.push((key, item));
    }
    Ok(arguments)
}

impl Chat<'_> {
    pub(crate) fn has_tools(&self) -> bool {
        self.tools.is_some_and(|tools| tools != "null")
    }

    pub(crate) fn adds_special_tokens(&self) -> bool {
        self.of_engines.add_special_tokens == Some("true")
    }

    pub(crate) fn variables(&self, facts: TemplateProperties) -> Result<TemplateVariables, ChatError> {
        let given = message::parse(self.messages).map_err(ChatError::Json)?;
        let given = given.ok_or(ChatError::Unsupported("messages that are no list"))?;
        let messages = given.iter().map(|message| one_message(message, facts.format));
        let mut messages = messages.collect::<Result<Vec<_>, _>>()?;
        if messages.is_empty() {
            return Err(ChatError::Unsupported("no messages"));
        }
        if !facts.supports_developer && messages.iter().any(|message| role(message) == "developer") {
            messages = without_developer(messages);
        }
        let flag = |raw: Option<&str>, default: bool| match raw {
            Some("true") => true,
            Some("false") => false,
            _ => default,
        };
        let add_generation_prompt = flag(self.add_generation_prompt, true);
        let continued = if flag(self.continue_final_message, false) {
            if add_generation_prompt || !facts.reads_content {
                return Err(ChatError::Unsupported("a final message that cannot be continued"));
            }
            Some(continue_final(&mut messages)?)
        } else {
            None
        };
        Ok(TemplateVariables {
            messages,
            given,
            tools: self.tools()?,
            documents: Some(optional(self.documents)?).filter(|documents| !documents.is_none()),
            add_generation_prompt,
            continued,
            extra: self.extra()?,
        })
    }

    /// Returns the tools with exactly the fields of the API, in its order; absent ones are `None`.
    fn tools(&self) -> Result<Value, ChatError> {
        let tools = optional(self.tools)?;
        if tools.is_none() {
            return Ok(tools);
        }
        let tools = tools
            .try_iter()
            .map_err(|_| ChatError::Unsupported("tools that are no list"))?;
        tools.map(|tool| one_tool(&tool)).collect()
    }

    fn extra(&self) -> Result<Vec<(Value, Value)>, ChatError> {
        let given = optional(self.chat_template_kwargs)?;
        let mut extra = template_arguments(&given, &["chat_template", "tokenize", "messages", "tools"])?;
        let effort = optional(self.reasoning_effort)?;
        if !effort.is_none() {
            let thinks = effort.as_str() != Some("none");
            if given
                .get_attr("enable_thinking")
                .is_ok_and(|value| value.is_undefined())
                || given.is_none()
            {
                extra.push((Value::from("enable_thinking"), Value::from(thinks)));
            }
            extra.push((Value::from("reasoning_effort"), effort));
        }
        Ok(extra)
    }
}

pub(crate) fn optional(raw: Option<&str>) -> Result<Value, ChatError> {
    raw.map_or(Ok(Value::from(())), |raw| {
        value::parse(raw).map_err(ChatError::Json)
    })
}

/// Returns a field, unless it is absent or null.
pub(crate) fn field(of: &Value, name: &str) -> Option<Value> {
    let value = of.get_attr(name).ok()?;
    (!value.is_undefined() && !value.is_none()).then_some(value)
}

fn role(message: &Value) -> String {
    let role = field(message, "role");
    role.and_then(|role| role.as_str().map(str::to_owned))
        .unwrap_or_default()
}

pub(crate) type NamedEntries = Vec<(&'static str, Value)>;

pub(crate) fn map(entries: NamedEntries) -> Value {
    value::named(entries)
}

fn one_tool(tool: &Value) -> Result<Value, ChatError> {
    let function = field(tool, "function").ok_or(ChatError::Unsupported("a tool that is no function"))?;
    let or_none = |name| field(&function, name).unwrap_or_else(|| Value::from(()));
    let deferred = field(tool, "defer_loading");
    let mut called: NamedEntries = ["name", "description", "parameters"]
        .map(|name| (name, or_none(name)))
        .into();
    called.extend(field(&function, "strict").map(|strict| ("strict", strict)));
    let inner = field(&function, "defer_loading").or_else(|| deferred.clone());
    called.extend(inner.map(|deferred| ("defer_loading", deferred)));
    let mut entries = vec![("type", Value::from("function")), ("function", map(called))];
    entries.extend(deferred.map(|deferred| ("defer_loading", deferred)));
    Ok(map(entries))
}

fn one_message(message: &Message, format: ContentFormat) -> Result<Value, ChatError> {
    let given = message
        .field("role")
        .and_then(|given| Some((given, given.as_str()?)));
    let given = given.filter(|(_, role)| !role.is_empty());
    let (given, role) = given.ok_or(ChatError::Unsupported("a message without a role"))?;
    let content = content(message, role, format)?;
    let mut entries: NamedEntries = vec![("role", given.clone()), ("content", content)];
    match role {
        "assistant" => {
            if let Some(calls) = message.field("tool_calls") {
                entries.extend(tool_calls(calls)?.map(|calls| ("tool_calls", calls)));
            }
            let reasoning = message.field("reasoning");
            if let Some(reasoning) = reasoning.or_else(|| message.field("reasoning_content")) {
                entries.push(("reasoning", reasoning.clone()));
                entries.push(("reasoning_content", reasoning.clone()));
            }
        }
        "tool" => {
            let id = message.given("tool_call_id");
            entries.extend(id.map(|id| ("tool_call_id", id.clone())));
        }
        _ => {}
    }
    for name in ["name", "task"] {
        let named = message
            .field(name)
            .filter(|value| value.kind() == ValueKind::String);
        entries.extend(named.map(|value| (name, value.clone())));
    }
    if role == "developer" {
        let tools = message.field("tools").cloned();
        entries.push(("tools", tools.unwrap_or_else(|| Value::from(()))));
    }
    Ok(map(entries))
}

/// Returns a message's content in the template's form.
fn content(message: &Message, role: &str, format: ContentFormat) -> Result<Value, ChatError> {
    let given = message.field("content");
    // By far the most common case.
    if let Some((given, text)) = given.and_then(|given| Some((given, given.as_str()?)))
        && format == ContentFormat::String
        && (role != "system" || !text.starts_with(BILLING_LINE))
    {
        return Ok(given.clone());
    }
    let mut parts = Vec::new();
    match given {
        None => {}
        Some(text) if text.kind() == ValueKind::String => parts.push((None, text.clone())),
        Some(list) if list.kind() == ValueKind::Seq => {
            for part in list.try_iter().into_iter().flatten() {
                parts.extend(one_part(&part)?);
            }
        }
        Some(_) => {
            return Err(ChatError::Unsupported(
                "a content that is neither text nor a list",
            ));
        }
    }
    if role == "system" {
        parts = parts.into_iter().filter_map(without_billing_line).collect();
    }
    let is_text = parts.iter().all(|(reference, _)| reference.is_none());
    if format == ContentFormat::String || (role == "tool" && is_text) {
        let texts: Vec<&str> = parts.iter().filter_map(|(_, text)| text.as_str()).collect();
        // Empty parts do not matter in a joined text, but they do in a tool's.
        let texts = texts
            .into_iter()
            .filter(|text| format == ContentFormat::OpenAi || !text.is_empty());
        return Ok(Value::from(texts.collect::<Vec<_>>().join("\n")));
    }
    let wrap = |(reference, text): ContentPart| match reference {
        Some(kind) => map(vec![("type", Value::from(kind)), ("name", text)]),
        None => map(vec![("type", Value::from("text")), ("text", text)]),
    };
    Ok(parts.into_iter().map(wrap).collect())
}

/// Text, or a placeholder of a reference with its type.
type ContentPart = (Option<&'static str>, Value);

fn one_part(part: &Value) -> Result<Option<ContentPart>, ChatError> {
    if part.kind() == ValueKind::String {
        return Ok(Some((None, part.clone())));
    }
    if field(part, "uuid").is_some() {
        return Err(ChatError::Unsupported("media"));
    }
    let kind = field(part, "type").unwrap_or_default();
    let (name, reference) = match kind.as_str() {
        Some("text" | "input_text" | "output_text") => ("text", None),
        Some("refusal") => ("refusal", None),
        Some("thinking") => ("thinking", None),
        Some("tool_reference") => ("name", Some("tool_reference")),
        _ => return Err(ChatError::Unsupported("media")),
    };
    match field(part, name) {
        Some(text) if text.kind() == ValueKind::String => Ok(Some((reference, text))),
        None if matches!(kind.as_str(), Some("text" | "refusal")) => Ok(None),
        _ => Err(ChatError::Unsupported("a part without its text")),
    }
}

fn without_billing_line(part: ContentPart) -> Option<ContentPart> {
    let text = part.1.as_str().unwrap_or_default();
    if part.0.is_some() || !text.starts_with(BILLING_LINE) {
        return Some(part);
    }
    let (_, rest) = text.split_once('\n')?;
    (!rest.is_empty()).then(|| (None, Value::from(rest)))
}

/// Returns the error of an entry of `tool_calls` that is no call.
pub(crate) fn no_call() -> ChatError {
    ChatError::Unsupported("a tool call that is none")
}

/// Returns tool calls with their arguments as objects; `None` if there are none.
fn tool_calls(calls: &Value) -> Result<Option<Value>, ChatError> {
    let calls = calls.try_iter().map_err(|_| no_call())?;
    let mut parsed = Vec::new();
    for call in calls {
        let function = field(&call, "function").ok_or_else(no_call)?;
        if function.kind() != ValueKind::Map
            || field(&call, "type").is_some_and(|kind| kind.as_str() != Some("function"))
        {
            return Err(no_call());
        }
        let arguments = match field(&function, "arguments") {
            Some(object) if object.kind() == ValueKind::Map => object,
            Some(text) => arguments(text.as_str().unwrap_or_default())?,
            None => map(Vec::new()),
        };
        let function = replaced(&function, "arguments", arguments)?;
        parsed.push(replaced(&call, "function", function)?);
    }
    Ok((!parsed.is_empty()).then(|| Value::from(parsed)))
}

/// Returns the arguments of a call, which are empty if they are no JSON object.
fn arguments(text: &str) -> Result<Value, ChatError> {
    match value::parse(text) {
        Ok(object) if object.kind() == ValueKind::Map => Ok(object),
        // Python reads more than JSON.
        Err(_) if is_json(text) || ["NaN", "Infinity"].iter().any(|name| text.contains(name)) => Err(
            ChatError::Unsupported("arguments of a call that only Python reads"),
        ),
        _ => Ok(map(Vec::new())),
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Returns a map with another value of one key.
fn replaced(of: &Value, name: &str, by: Value) -> Result<Value, ChatError> {
    let mut entries = Vec::new();
    let mut by = Some(by);
    for key in of.try_iter().map_err(ChatError::Template)? {
        let value = match key.as_str() == Some(name) {
            true => by.take().unwrap_or_default(),
            false => of.get_item(&key).map_err(ChatError::Template)?,
        };
        entries.push((key, value));
    }
    entries.extend(by.map(|by| (Value::from(name), by)));
    Ok(value::map(entries))
}

/// Converts messages for templates without the role: developer messages join the leading system message.
fn without_developer(messages: Vec<Value>) -> Vec<Value> {
    let is_system = |message: &Value| matches!(&*role(message), "system" | "developer");
    let renamed = |message: &Value| {
        let keys = ["content", "name", "task"];
        let kept = keys
            .into_iter()
            .filter_map(|key| Some((key, field(message, key)?)));
        map(std::iter::once(("role", Value::from("system")))
            .chain(kept)
            .collect())
    };
    let count = messages.iter().filter(|message| is_system(message)).count();
    if count == 1 && is_system(&messages[0]) {
        let mut messages = messages;
        messages[0] = renamed(&messages[0]);
        return messages;
    }
    let text = |message: &Value| match field(message, "content") {
        Some(text) if text.kind() == ValueKind::String => text.as_str().map(str::to_owned),
        Some(parts) => {
            let texts = parts.try_iter().into_iter().flatten();
            let texts = texts.filter_map(|part| field(&part, "text")?.as_str().map(str::to_owned));
            Some(texts.collect::<Vec<_>>().join("\n"))
        }
        None => None,
    };
    let (system, others): (Vec<_>, Vec<_>) = messages.into_iter().partition(is_system);
    let texts: Vec<_> = system
        .iter()
        .filter_map(text)
        .filter(|text| !text.is_empty())
        .collect();
    let merged = map(vec![
        ("role", Value::from("system")),
        ("content", Value::from(texts.join("\n\n"))),
    ]);
    std::iter::once(merged).chain(others).collect()
}

/// Marks the end of the final message; returns its text.
fn continue_final(messages: &mut [Value]) -> Result<String, ChatError> {
    let nothing = || ChatError::Unsupported("a final message that cannot be continued");
    let last = messages.last_mut().ok_or_else(nothing)?;
    let content = field(last, "content").ok_or_else(nothing)?;
    if let Some(text) = content.as_str() {
        let text = text.to_owned();
        *last = replaced(last, "content", Value::from(format!("{text}{CONTINUE_TAG}")))?;
        return Ok(text);
    }
    let mut parts: Vec<Value> = content.try_iter().map_err(|_| nothing())?.collect();
    let part = parts.iter_mut().rev().find(|part| field(part, "text").is_some());
    let part = part.ok_or_else(nothing)?;
    let text = field(part, "text").and_then(|text| text.as_str().map(str::to_owned));
    let text = text.ok_or_else(nothing)?;
    *part = replaced(part, "text", Value::from(format!("{text}{CONTINUE_TAG}")))?;
    *last = replaced(last, "content", Value::from(parts))?;
    Ok(text)
}

/// Cuts a rendered chat at the end of its final message.
pub(crate) fn cut(mut rendered: String, continued: &str) -> Result<String, ChatError> {
    let gone = || ChatError::Unsupported("a final message that the template changes");
    if !rendered.contains(strip(continued)) {
        return Err(gone());
    }
    let at = rendered.rfind(CONTINUE_TAG.trim()).ok_or_else(gone)?;
    let keeps_spaces = rendered[at..].starts_with(CONTINUE_TAG);
    rendered.truncate(at);
    if !keeps_spaces {
        rendered.truncate(strip_end(&rendered).len());
    }
    Ok(rendered)
}
