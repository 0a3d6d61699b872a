//! Messages of a chat as those of Harmony: an answer's reasoning, text and calls become messages of their own.

use std::collections::HashMap;

use minijinja::value::{Value, ValueKind};

use crate::chat::{ChatError, field, no_call};
use crate::message::Message;

/// Kind of a message in Harmony.
#[derive(Debug)]
pub(super) enum HarmonyKind {
    Question,
    Developer,
    /// Text of the model in a channel.
    Channel(&'static str),
    /// Call of a function with this name.
    Call(Value),
    /// Output of a function with this name; `None` if no call has the output's id.
    Output(Option<Value>),
}

/// Message in Harmony.
#[derive(Debug)]
pub(super) struct HarmonyMessage {
    pub(super) kind: HarmonyKind,
    pub(super) texts: Vec<Value>,
}

const ANALYSIS: &str = "analysis";
const FINAL: &str = "final";

/// A call of a function.
struct FunctionCall {
    id: Value,
    name: Value,
    arguments: Value,
}

/// Converts messages. Returns the leading instructions, if there are some, and the other messages.
pub(super) fn messages(given: &[Message]) -> Result<(Option<String>, Vec<HarmonyMessage>), ChatError> {
    let first = given.first().ok_or(ChatError::Unsupported("no messages"))?;
    let is_lead = matches!(first.text("role"), Some("system" | "developer"));
    let (lead, others) = given.split_at(usize::from(is_lead));
    let instructions = match lead {
        [lead] => joined(&parts(lead)?),
        _ => None,
    };
    let calls = others.iter().map(calls).collect::<Result<Vec<_>, _>>()?;
    let ids = calls.iter().flatten();
    // Of a repeated id the later call counts.
    let names: HashMap<&str, &Value> = ids
        .filter_map(|call| Some((call.id.as_str()?, &call.name)))
        .collect();
    let mut converted = Vec::with_capacity(others.len() + 4);
    for (message, calls) in others.iter().zip(&calls) {
        one_message(message, calls, &names, &mut converted)?;
    }
    drop_reasoning(&mut converted);
    Ok((instructions, converted))
}

fn one_message(
    message: &Message,
    calls: &[FunctionCall],
    names: &HashMap<&str, &Value>,
    to: &mut Vec<HarmonyMessage>,
) -> Result<(), ChatError> {
    let parts = parts(message)?;
    let texts = || parts.iter().flatten().cloned().collect::<Vec<_>>();
    let mut push = |kind, texts| to.push(HarmonyMessage { kind, texts });
    match message.text("role") {
        Some("user") => push(HarmonyKind::Question, texts()),
        Some("system" | "developer") if has_text(&parts) => push(HarmonyKind::Developer, texts()),
        Some("system" | "developer") => {}
        Some("tool") => {
            let id = message.text("tool_call_id").unwrap_or_default();
            push(
                HarmonyKind::Output(names.get(id).map(|name| (*name).clone())),
                texts(),
            );
        }
        Some("assistant") => {
            let reasoning = reasoning(message)?;
            let reasoning = reasoning.map(|text| (HarmonyKind::Channel(ANALYSIS), vec![text.clone()]));
            if calls.is_empty() {
                reasoning.into_iter().for_each(|(kind, texts)| push(kind, texts));
                // vLLM looks at the first part alone.
                let first = parts.first().cloned().flatten();
                if first.is_some_and(|text| is_filled(&text)) {
                    push(HarmonyKind::Channel(FINAL), texts());
                }
                return Ok(());
            }
            // Unlike those of an answer, the parts are one text.
            if let Some(text) = joined(&parts).filter(|text| !text.is_empty()) {
                push(HarmonyKind::Channel("commentary"), vec![Value::from(text)]);
            }
            reasoning.into_iter().for_each(|(kind, texts)| push(kind, texts));
            for call in calls {
                push(HarmonyKind::Call(call.name.clone()), vec![call.arguments.clone()]);
            }
        }
        _ => return Err(ChatError::Unsupported("a role that Harmony does not have")),
    }
    Ok(())
}

/// Drops the reasoning before the last answer, as the model was trained.
fn drop_reasoning(messages: &mut Vec<HarmonyMessage>) {
    let is_of = |message: &HarmonyMessage, channel| matches!(message.kind, HarmonyKind::Channel(own) if own == channel);
    let last = messages.iter().rposition(|message| is_of(message, FINAL));
    let mut at = 0;
    messages.retain(|message| {
        at += 1;
        last.is_none_or(|last| at > last) || !is_of(message, ANALYSIS)
    });
}

/// Parts of a content; `None` is one without text.
type ContentParts = Vec<Option<Value>>;

fn parts(message: &Message) -> Result<ContentParts, ChatError> {
    let Some(content) = message.field("content") else {
        return Ok(Vec::new());
    };
    match content.kind() {
        ValueKind::String => Ok(vec![Some(content.clone())]),
        ValueKind::Seq => content
            .try_iter()
            .map_err(ChatError::Template)?
            .map(one_part)
            .collect(),
        _ => Err(ChatError::Unsupported(
            "a content that is neither text nor a list",
        )),
    }
}

fn one_part(part: Value) -> Result<Option<Value>, ChatError> {
    let kind = field(&part, "type").unwrap_or_default();
    match (kind.as_str(), field(&part, "text")) {
        (Some("text"), Some(text)) if text.kind() == ValueKind::String => Ok(Some(text)),
        (Some("refusal"), None) => Ok(None),
        (Some("text"), _) => Err(ChatError::Unsupported("a part without its text")),
        _ => Err(ChatError::Unsupported("media")),
    }
}

fn has_text(parts: &[Option<Value>]) -> bool {
    parts.iter().any(Option::is_some)
}

/// Returns the texts as one; `None` without texts.
fn joined(parts: &[Option<Value>]) -> Option<String> {
    let texts = parts.iter().flatten().filter_map(|text| text.as_str());
    has_text(parts).then(|| texts.collect())
}

fn is_filled(text: &Value) -> bool {
    text.as_str().is_some_and(|text| !text.is_empty())
}

/// Returns the reasoning of an answer, unless it is empty.
fn reasoning(message: &Message) -> Result<Option<&Value>, ChatError> {
    let reasoning = message
        .field("reasoning")
        .or_else(|| message.field("reasoning_content"));
    match reasoning {
        Some(text) if text.kind() != ValueKind::String => {
            Err(ChatError::Unsupported("reasoning that is no text"))
        }
        reasoning => Ok(reasoning.filter(|text| is_filled(text))),
    }
}

/// Returns the calls of a message, of whatever role it is.
fn calls(message: &Message) -> Result<Vec<FunctionCall>, ChatError> {
    let Some(given) = message.field("tool_calls") else {
        return Ok(Vec::new());
    };
    if given.kind() != ValueKind::Seq {
        return Err(no_call());
    }
    let calls = given.try_iter().map_err(|_| no_call())?;
    calls.map(|call| one_call(&call).ok_or_else(no_call)).collect()
}

fn one_call(call: &Value) -> Option<FunctionCall> {
    let text = |of: &Value, name| field(of, name).filter(|value| value.kind() == ValueKind::String);
    field(call, "type").filter(|kind| kind.as_str() == Some("function"))?;
    let function = field(call, "function")?;
    Some(FunctionCall {
        id: text(call, "id")?,
        name: text(&function, "name")?,
        arguments: text(&function, "arguments")?,
    })
}
